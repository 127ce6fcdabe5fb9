// torchneuron._C: adaptive eager's side towards Python, which compiles its windows.
#pragma once

#include <pybind11/pybind11.h>

namespace tn {

void init_adaptive(pybind11::module_& module);

}  // namespace tn
