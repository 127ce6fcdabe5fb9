#include "pjrt/error.h"

#include <pjrt_c_api.h>

namespace tn::pjrt {
namespace {

std::string message(std::string_view api, int code, std::string_view text) {
  std::string out(api);
  out += ": ";
  out += code_name(code);
  out += ": ";
  out += text;
  return out;
}

}  // namespace

std::string code_name(int code) {
  static constexpr const char* kNames[] = {
      "OK",
      "CANCELLED",
      "UNKNOWN",
      "INVALID_ARGUMENT",
      "DEADLINE_EXCEEDED",
      "NOT_FOUND",
      "ALREADY_EXISTS",
      "PERMISSION_DENIED",
      "RESOURCE_EXHAUSTED",
      "FAILED_PRECONDITION",
      "ABORTED",
      "OUT_OF_RANGE",
      "UNIMPLEMENTED",
      "INTERNAL",
      "UNAVAILABLE",
      "DATA_LOSS",
      "UNAUTHENTICATED",
  };
  static_assert(std::size(kNames) == PJRT_Error_Code_UNAUTHENTICATED + 1);
  if (code >= 0 && code < static_cast<int>(std::size(kNames))) return kNames[code];
  return "CODE_" + std::to_string(code);
}

Error::Error(std::string_view api, int code, std::string_view text)
    : std::runtime_error(message(api, code, text)), api_(api), text_(text), code_(code) {}

bool Error::is_out_of_memory() const { return code_ == PJRT_Error_Code_RESOURCE_EXHAUSTED; }

bool Error::is_unimplemented() const { return code_ == PJRT_Error_Code_UNIMPLEMENTED; }

}  // namespace tn::pjrt
