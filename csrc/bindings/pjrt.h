#pragma once

#include <pybind11/pybind11.h>

namespace tn {

// Adds the submodule `pjrt` to `parent`.
void init_pjrt(pybind11::module_& parent);

}  // namespace tn
