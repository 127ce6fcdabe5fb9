// What a PJRT call that failed becomes.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tn::pjrt {

// The name of a PJRT_Error_Code, such as "RESOURCE_EXHAUSTED"; "CODE_<n>" for a code we do not
// know.
std::string code_name(int code);

// A failed call: which entry of the C API, which code (a PJRT_Error_Code) and the plugin's text.
// what() is "<API name>: <CODE NAME>: <text>".
class Error : public std::runtime_error {
 public:
  Error(std::string_view api, int code, std::string_view text);

  int code() const { return code_; }
  const std::string& api() const { return api_; }
  const std::string& text() const { return text_; }

  bool is_out_of_memory() const;
  bool is_unimplemented() const;

 private:
  std::string api_;
  std::string text_;
  int code_;
};

}  // namespace tn::pjrt
