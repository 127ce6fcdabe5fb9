// Checks of numbers that are operands: which program a call needs does not depend on them, so the
// checks that are made where a signature is first seen cannot see them.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

namespace tn::eager {

// Raises RuntimeError where PyTorch's kernels would.
using Precheck = void (*)(c10::ArrayRef<c10::IValue> arguments);

// Null for an op that has none. `name` is "aten::uniform_".
Precheck precheck_of(std::string_view name);

}  // namespace tn::eager
