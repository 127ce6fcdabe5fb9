#include "pjrt/client.h"

#include <algorithm>
#include <cctype>

#include "pjrt/compile_options.h"

namespace tn::pjrt {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// `program` points into `mlir`; the plugin only reads it, though the C struct is not const.
PJRT_Program mlir_program(std::string_view mlir) {
  static constexpr std::string_view kFormat = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(mlir.data());
  program.code_size = mlir.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

}  // namespace

std::shared_ptr<Client> Client::create(std::shared_ptr<const Api> api, const NamedValues& options) {
  std::vector<PJRT_NamedValue> c_options = to_c(options);
  auto args = Api::args<entry::Client_Create>();
  args.create_options = c_options.data();
  args.num_options = c_options.size();
  api->call<entry::Client_Create>(args);
  std::shared_ptr<Client> client(new Client(std::move(api), args.client));

  auto devices = Api::args<entry::Client_AddressableDevices>();
  devices.client = client->raw_;
  client->api_->call<entry::Client_AddressableDevices>(devices);
  client->devices_.assign(devices.addressable_devices,
                          devices.addressable_devices + devices.num_addressable_devices);

  auto name = Api::args<entry::Client_PlatformName>();
  name.client = client->raw_;
  client->api_->call<entry::Client_PlatformName>(name);
  client->platform_name_.assign(name.platform_name, name.platform_name_size);
  client->is_cpu_ = lower(client->platform_name_) == "cpu";
  return client;
}

Client::Client(std::shared_ptr<const Api> api, PJRT_Client* raw)
    : api_(std::move(api)), raw_(raw) {}

Client::~Client() {
  auto args = Api::args<entry::Client_Destroy>();
  args.client = raw_;
  api_->call_noexcept<entry::Client_Destroy>(args);
}

std::string Client::platform_version() const {
  auto args = Api::args<entry::Client_PlatformVersion>();
  args.client = raw_;
  api_->call<entry::Client_PlatformVersion>(args);
  return {args.platform_version, args.platform_version_size};
}

PJRT_Device* Client::device(int index) const {
  if (index < 0 || index >= device_count()) {
    throw Error(entry::Client_AddressableDevices::kName, PJRT_Error_Code_OUT_OF_RANGE,
                "there is no device " + std::to_string(index) + ": the " + platform_name_ +
                    " client has " + std::to_string(device_count()) + ".");
  }
  return devices_[static_cast<size_t>(index)];
}

PJRT_DeviceDescription* Client::description(int index) const {
  auto args = Api::args<entry::Device_GetDescription>();
  args.device = device(index);
  api_->call<entry::Device_GetDescription>(args);
  return args.device_description;
}

int Client::device_id(int index) const {
  auto args = Api::args<entry::DeviceDescription_Id>();
  args.device_description = description(index);
  api_->call<entry::DeviceDescription_Id>(args);
  return args.id;
}

std::string Client::device_kind(int index) const {
  auto args = Api::args<entry::DeviceDescription_Kind>();
  args.device_description = description(index);
  api_->call<entry::DeviceDescription_Kind>(args);
  return {args.device_kind, args.device_kind_size};
}

NamedValues Client::device_attributes(int index) const {
  if (!api_->offers<entry::DeviceDescription_Attributes>()) return {};
  auto args = Api::args<entry::DeviceDescription_Attributes>();
  args.device_description = description(index);
  api_->call<entry::DeviceDescription_Attributes>(args);
  return from_c(args.attributes, args.num_attributes);
}

std::map<std::string, int64_t> Client::memory_stats(int index) const {
  if (!api_->offers<entry::Device_MemoryStats>()) return {};
  auto args = Api::args<entry::Device_MemoryStats>();
  args.device = device(index);
  try {
    api_->call<entry::Device_MemoryStats>(args);
  } catch (const Error& error) {
    if (error.is_unimplemented()) return {};
    throw;
  }
  std::map<std::string, int64_t> out{{"bytes_in_use", args.bytes_in_use}};
#define TN_PJRT_ADD_IF_SET(field) \
  if (args.field##_is_set) out.emplace(#field, args.field);
  TN_PJRT_ADD_IF_SET(peak_bytes_in_use)
  TN_PJRT_ADD_IF_SET(num_allocs)
  TN_PJRT_ADD_IF_SET(largest_alloc_size)
  TN_PJRT_ADD_IF_SET(bytes_limit)
  TN_PJRT_ADD_IF_SET(bytes_reserved)
  TN_PJRT_ADD_IF_SET(peak_bytes_reserved)
  TN_PJRT_ADD_IF_SET(bytes_reservable_limit)
  TN_PJRT_ADD_IF_SET(largest_free_block_bytes)
  TN_PJRT_ADD_IF_SET(pool_bytes)
  TN_PJRT_ADD_IF_SET(peak_pool_bytes)
#undef TN_PJRT_ADD_IF_SET
  return out;
}

std::pair<Buffer, Event> Client::buffer_from_host(const void* data, PJRT_Buffer_Type type,
                                                  const int64_t* dims, size_t ndims, int device,
                                                  PJRT_HostBufferSemantics semantics) const {
  // Some plugins refuse a null pointer even where there is nothing to read.
  static constexpr char kNothing = 0;
  auto args = Api::args<entry::Client_BufferFromHostBuffer>();
  args.client = raw_;
  args.data = data != nullptr ? data : &kNothing;
  args.type = type;
  args.dims = dims;
  args.num_dims = ndims;
  args.host_buffer_semantics = semantics;
  args.device = this->device(device);
  api_->call<entry::Client_BufferFromHostBuffer>(args);
  return {Buffer(shared_from_this(), args.buffer), Event(*api_, args.done_with_host_buffer)};
}

Buffer Client::from_host(const void* data, PJRT_Buffer_Type type, const int64_t* dims, size_t ndims,
                         int device) const {
  return buffer_from_host(data, type, dims, ndims, device,
                          PJRT_HostBufferSemantics_kImmutableOnlyDuringCall)
      .first;
}

std::pair<Buffer, Event> Client::from_host_async(const void* data, PJRT_Buffer_Type type,
                                                 const int64_t* dims, size_t ndims,
                                                 int device) const {
  return buffer_from_host(data, type, dims, ndims, device,
                          PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes);
}

std::shared_ptr<Executable> Client::compile(std::string_view mlir, int device,
                                            const XlaFlags& flags) const {
  std::string options = compile_options(device_id(device), flags);
  PJRT_Program program = mlir_program(mlir);
  auto args = Api::args<entry::Client_Compile>();
  args.client = raw_;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  api_->call<entry::Client_Compile>(args);
  return std::make_shared<Executable>(shared_from_this(), args.executable);
}

std::shared_ptr<Executable> Client::load(std::string_view bytes, std::string_view options) const {
  auto args = Api::args<entry::Executable_DeserializeAndLoad>();
  args.client = raw_;
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  if (!options.empty()) {
    args.overridden_serialized_compile_options = options.data();
    args.overridden_serialized_compile_options_size = options.size();
  }
  api_->call<entry::Executable_DeserializeAndLoad>(args);
  return std::make_shared<Executable>(shared_from_this(), args.loaded_executable);
}

std::shared_ptr<Executable> Client::deserialize(std::string_view bytes, int device) const {
  const int id = device_id(device);
  // With one device there is nothing to override, and the serialized options keep their flags.
  std::string options = device_count() > 1 ? compile_options(id, {}) : std::string();
  std::shared_ptr<Executable> out = load(bytes, options);
  // A plugin too old to know the override field loads the program where it was compiled for.
  if (std::optional<int> loaded = out->device_id(); loaded.has_value() && *loaded != id) {
    throw Error(entry::Executable_DeserializeAndLoad::kName, PJRT_Error_Code_FAILED_PRECONDITION,
                "the program was compiled for the device with id " + std::to_string(*loaded) +
                    " and the plugin cannot load it on the one with id " + std::to_string(id) +
                    ".");
  }
  return out;
}

}  // namespace tn::pjrt
