// The signature of a call: everything that decides which program it needs, and the operands that
// don't.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/storage.h"
#include "runtime/value.h"

namespace tn::eager {

// How an argument of an op takes part in its signature.
struct ArgumentPolicy {
  enum class Kind : uint8_t { kTensor, kTensorList, kScalar, kScalarList, kStatic };
  Kind kind = Kind::kStatic;
  bool operand = false;       // a scalar whose value is an operand of the program
  bool written = false;       // the op mutates this argument
  c10::IValue default_value;  // only where `operand`: equal values stay in the signature
};

// A tensor of the call, in the order of the arguments.
struct TensorRef {
  at::TensorImpl* impl = nullptr;
  runtime::StorageHandle* handle = nullptr;
  runtime::ValuePtr value;  // what the storage held when the signature was taken
  uint32_t group = 0;       // index of the first tensor with the same storage
  bool whole = false;       // the view covers its storage from offset 0
  bool written = false;
};

// A scalar operand: its dtype and its bytes.
struct ScalarRef {
  c10::ScalarType dtype = c10::ScalarType::Double;
  std::array<uint64_t, 2> bits{};
  std::vector<double> list;  // a packed list of floats, where not empty
  size_t argument = 0;
  bool wrapped = true;  // a Python number, not a 0-d CPU tensor
  c10::IValue example;  // the number, for shape inference
};

struct Signature {
  c10::SmallVector<uint64_t, 64> words;
  c10::SmallVector<TensorRef, 6> tensors;
  c10::SmallVector<ScalarRef, 2> scalars;
  c10::DeviceIndex device = -1;
  std::optional<at::Generator> generator;
  bool cacheable = true;
  // Which arguments hold CPU tensors of one or more dimensions, in order.
  c10::SmallVector<size_t, 2> host_tensors;
  // Which arguments hold tensors whose memory is the conjugate or the negative of their value.
  c10::SmallVector<size_t, 2> lazy_tensors;

  size_t hash() const noexcept;
};

// Takes the signature of a call whose arguments are the last `policies.size()` entries of the
// stack. Raises RuntimeError for operands on different devices.
void take_signature(const std::vector<ArgumentPolicy>& policies, const torch::jit::Stack& stack,
                    Signature& signature);

}  // namespace tn::eager
