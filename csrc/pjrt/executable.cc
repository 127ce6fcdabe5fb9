#include "pjrt/executable.h"

#include <variant>

#include "pjrt/client.h"

namespace tn::pjrt {
namespace {

// Calls an entry that only some plugins implement; false where this one does not.
template <class Entry>
bool try_call(const Api& api, typename Entry::Args& args) {
  if (!api.offers<Entry>()) return false;
  try {
    api.call<Entry>(args);
  } catch (const Error& error) {
    if (error.is_unimplemented()) return false;
    throw;
  }
  return true;
}

}  // namespace

Executable::Executable(std::shared_ptr<const Client> client, Raw raw)
    : client_(std::move(client)), api_(&client_->api()), raw_(raw.pointer) {}

// Delegates, so that the destructor frees `raw` also when something below throws.
Executable::Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* raw)
    : Executable(std::move(client), Raw{raw}) {
  auto program = Api::args<entry::LoadedExecutable_GetExecutable>();
  program.loaded_executable = raw_;
  api().call<entry::LoadedExecutable_GetExecutable>(program);
  program_ = program.executable;

  auto outputs = Api::args<entry::Executable_NumOutputs>();
  outputs.executable = program_;
  api().call<entry::Executable_NumOutputs>(outputs);
  num_outputs_ = outputs.num_outputs;
}

Executable::~Executable() {
  if (program_ != nullptr) {
    auto program = Api::args<entry::Executable_Destroy>();
    program.executable = program_;
    api().call_noexcept<entry::Executable_Destroy>(program);
  }
  auto loaded = Api::args<entry::LoadedExecutable_Destroy>();
  loaded.executable = raw_;
  api().call_noexcept<entry::LoadedExecutable_Destroy>(loaded);
}

std::string Executable::name() const {
  auto args = Api::args<entry::Executable_Name>();
  args.executable = program_;
  api().call<entry::Executable_Name>(args);
  return {args.executable_name, args.executable_name_size};
}

std::optional<int> Executable::device_id() const {
  auto devices = Api::args<entry::LoadedExecutable_AddressableDevices>();
  devices.executable = raw_;
  if (!try_call<entry::LoadedExecutable_AddressableDevices>(api(), devices)) return std::nullopt;
  if (devices.num_addressable_devices == 0) return std::nullopt;

  auto description = Api::args<entry::Device_GetDescription>();
  description.device = devices.addressable_devices[0];
  api().call<entry::Device_GetDescription>(description);
  auto id = Api::args<entry::DeviceDescription_Id>();
  id.device_description = description.device_description;
  api().call<entry::DeviceDescription_Id>(id);
  return id.id;
}

std::string Executable::serialize() const {
  auto args = Api::args<entry::Executable_Serialize>();
  args.executable = program_;
  api().call<entry::Executable_Serialize>(args);
  // Frees the plugin's copy also when ours cannot be allocated.
  struct Guard {
    PJRT_Executable_Serialize_Args& args;
    ~Guard() {
      if (args.serialized_executable_deleter != nullptr) {
        args.serialized_executable_deleter(args.serialized_executable);
      }
    }
  } guard{args};
  return {args.serialized_bytes, args.serialized_bytes_size};
}

void Executable::execute(PJRT_Buffer* const* args, size_t nargs, PJRT_Buffer** outs,
                         const int64_t* non_donatable, size_t n_non_donatable) const {
  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = non_donatable;
  options.num_non_donatable_input_indices = n_non_donatable;

  auto call = Api::args<entry::LoadedExecutable_Execute>();
  call.executable = raw_;
  call.options = &options;
  call.argument_lists = &args;
  call.num_devices = 1;
  call.num_args = nargs;
  call.output_lists = &outs;
  api().call<entry::LoadedExecutable_Execute>(call);
}

std::optional<int64_t> Executable::generated_code_size() const {
  auto args = Api::args<entry::Executable_SizeOfGeneratedCodeInBytes>();
  args.executable = program_;
  if (!try_call<entry::Executable_SizeOfGeneratedCodeInBytes>(api(), args)) return std::nullopt;
  return args.size_in_bytes;
}

std::optional<std::string> Executable::fingerprint() const {
  auto args = Api::args<entry::Executable_Fingerprint>();
  args.executable = program_;
  if (!try_call<entry::Executable_Fingerprint>(api(), args)) return std::nullopt;
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

std::map<std::string, double> Executable::cost_analysis() const {
  auto args = Api::args<entry::Executable_GetCostAnalysis>();
  args.executable = program_;
  if (!try_call<entry::Executable_GetCostAnalysis>(api(), args)) return {};
  std::map<std::string, double> out;
  for (const auto& [name, value] : from_c(args.properties, args.num_properties)) {
    if (const float* number = std::get_if<float>(&value)) out.emplace(name, *number);
    if (const int64_t* number = std::get_if<int64_t>(&value)) {
      out.emplace(name, static_cast<double>(*number));
    }
  }
  return out;
}

std::map<std::string, int64_t> Executable::memory_stats() const {
  auto args = Api::args<entry::Executable_GetCompiledMemoryStats>();
  args.executable = program_;
  if (!try_call<entry::Executable_GetCompiledMemoryStats>(api(), args)) return {};
  return {
      {"generated_code_size", args.generated_code_size_in_bytes},
      {"argument_size", args.argument_size_in_bytes},
      {"output_size", args.output_size_in_bytes},
      {"alias_size", args.alias_size_in_bytes},
      {"temp_size", args.temp_size_in_bytes},
  };
}

}  // namespace tn::pjrt
