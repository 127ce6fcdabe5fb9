#pragma once

#include <pybind11/pybind11.h>

namespace tn {

// torchneuron._C.Graph
void init_compile(pybind11::module_& module);

}  // namespace tn
