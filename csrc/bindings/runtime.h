#pragma once

#include <pybind11/pybind11.h>

namespace tn {

// Adds what the package needs of the runtime and of the eager path to the module.
void init_runtime(pybind11::module_& module);

}  // namespace tn
