#include "pjrt/api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace tn::pjrt {
namespace {

constexpr const char* kLoad = "GetPjrtApi";

std::string version_text(const PJRT_Api* api) {
  return std::to_string(api->pjrt_api_version.major_version) + "." +
         std::to_string(api->pjrt_api_version.minor_version);
}

std::string real_path(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) {
    throw Error(kLoad, PJRT_Error_Code_NOT_FOUND,
                "there is no PJRT plugin at '" + path + "': no such file.");
  }
  std::string out(resolved);
  std::free(resolved);
  return out;
}

const PJRT_Api* open(const std::string& path) {
  // RTLD_LOCAL: plugins bring their own copies of LLVM, protobuf and absl, which must not meet
  // those of another plugin.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    throw Error(kLoad, PJRT_Error_Code_FAILED_PRECONDITION,
                "the PJRT plugin '" + path +
                    "' cannot be loaded: " + (reason != nullptr ? reason : "unknown reason") + ".");
  }
  using GetPjrtApi = const PJRT_Api* (*)();
  auto get = reinterpret_cast<GetPjrtApi>(::dlsym(library, "GetPjrtApi"));
  const PJRT_Api* api = get != nullptr ? get() : nullptr;
  if (api == nullptr) {
    throw Error(kLoad, PJRT_Error_Code_FAILED_PRECONDITION,
                "'" + path + "' is not a PJRT plugin: it " +
                    (get == nullptr ? "does not export GetPjrtApi." : "offers no function table."));
  }
  return api;
}

void require_compatible(const std::string& path, const PJRT_Api* api) {
  // Before major version 1 the layout has been append-only in practice, so that the minor version
  // matters only through what the table and the structs have, which every call checks.
  if (api->pjrt_api_version.major_version == PJRT_API_MAJOR) return;
  throw Error(kLoad, PJRT_Error_Code_FAILED_PRECONDITION,
              "the PJRT plugin '" + path + "' has API version " + version_text(api) +
                  "; torchneuron was built for version " + std::to_string(PJRT_API_MAJOR) + ".x.");
}

}  // namespace

std::shared_ptr<const Api> Api::load(const std::string& so_path) {
  static std::mutex mutex;
  // Leaked on purpose: an Api lives until the process ends.
  static auto& loaded = *new std::map<std::string, std::shared_ptr<const Api>>();

  std::string path = real_path(so_path);
  std::lock_guard<std::mutex> lock(mutex);
  if (auto found = loaded.find(path); found != loaded.end()) return found->second;
  const PJRT_Api* raw = open(path);
  require_compatible(path, raw);
  std::shared_ptr<const Api> api(new Api(path, raw));
  api->initialize();
  loaded.emplace(std::move(path), api);
  return api;
}

void Api::initialize() const {
  if (!offers<entry::Plugin_Initialize>()) return;
  auto args = Api::args<entry::Plugin_Initialize>();
  call<entry::Plugin_Initialize>(args);
}

std::pair<int, int> Api::version() const {
  return {raw_->pjrt_api_version.major_version, raw_->pjrt_api_version.minor_version};
}

NamedValues Api::attributes() const {
  if (!offers<entry::Plugin_Attributes>()) return {};
  auto args = Api::args<entry::Plugin_Attributes>();
  call<entry::Plugin_Attributes>(args);
  return from_c(args.attributes, args.num_attributes);
}

std::vector<std::string> Api::missing_entries() const {
  std::vector<std::string> out;
#define TN_PJRT_ADD_IF_MISSING(fn) \
  if (!offers<entry::fn>()) out.emplace_back(entry::fn::kName);
  TN_PJRT_ENTRIES(TN_PJRT_ADD_IF_MISSING)
#undef TN_PJRT_ADD_IF_MISSING
  return out;
}

Error Api::take(std::string_view api, PJRT_Error* error) const {
  PJRT_Error_GetCode_Args code{};
  code.struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE;
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  // The three error functions are the first of the table, so that every plugin has them; an error
  // of theirs could only be reported through themselves.
  discard(raw_->PJRT_Error_GetCode(&code));

  PJRT_Error_Message_Args message{};
  message.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE;
  message.error = error;
  raw_->PJRT_Error_Message(&message);
  Error out(api, code.code, std::string_view(message.message, message.message_size));
  discard(error);
  return out;
}

void Api::discard(PJRT_Error* error) const noexcept {
  if (error == nullptr) return;
  PJRT_Error_Destroy_Args args{};
  args.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
  args.error = error;
  raw_->PJRT_Error_Destroy(&args);
}

void Api::throw_unimplemented(const char* name) const {
  throw Error(name, PJRT_Error_Code_UNIMPLEMENTED,
              "the PJRT plugin '" + path_ + "' (API version " + version_text(raw_) +
                  ") does not offer this function.");
}

}  // namespace tn::pjrt
