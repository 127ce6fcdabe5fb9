// torchneuron._C
#include <pybind11/pybind11.h>

#include "bindings/adaptive.h"
#include "bindings/compile.h"
#include "bindings/pjrt.h"
#include "bindings/runtime.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "The C++ core of torchneuron.";
  tn::init_pjrt(m);
  tn::init_runtime(m);
  tn::init_adaptive(m);
  tn::init_compile(m);
}
