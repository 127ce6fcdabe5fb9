// The Python functions that the core calls, set once by the package.
#pragma once

#include <pybind11/pybind11.h>

namespace tn::eager {

struct Callbacks {
  pybind11::object operand_arguments;  // (op: str) -> list[str]
  pybind11::object resolve;            // (op, args, tensors, scalars, key, device) -> dict
  pybind11::object announce_fallback;  // (op: str, reason: str) -> None
};

// Leaked: the interpreter may be gone before the core.
Callbacks& callbacks();

}  // namespace tn::eager
