// How a call's arguments are shown to Python on a miss.
#pragma once

#include <c10/core/ScalarType.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

namespace tn::eager {

// Stands for the tensor of this index among the call's tensors.
struct TensorArgument {
  uint32_t index;
};

// Stands for the scalar operand of this index.
struct ScalarArgument {
  uint32_t index;
};

struct TensorDescription {
  uint32_t storage;  // index of the first tensor with the same storage
  c10::ScalarType storage_dtype;
  int64_t storage_numel;
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset;
  int64_t storage_nbytes;
  bool whole;
  bool written;
};

struct ScalarDescription {
  c10::ScalarType dtype;
  int64_t length;  // of a packed list, else 0
  bool wrapped;    // a Python number, not a 0-d CPU tensor
  pybind11::object example;
};

}  // namespace tn::eager
