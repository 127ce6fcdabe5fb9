// PJRT's named values: options that go in, attributes and costs that come out.
#pragma once

#include <pjrt_c_api.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace tn::pjrt {

using Option = std::variant<std::string, bool, int64_t, float, std::vector<int64_t>>;
using NamedValues = std::map<std::string, Option>;

// The C form of `options`. It points into `options`, which must outlive it.
std::vector<PJRT_NamedValue> to_c(const NamedValues& options);

// Copies `count` values; one of a type that we do not know is left out.
NamedValues from_c(const PJRT_NamedValue* values, size_t count);

}  // namespace tn::pjrt
