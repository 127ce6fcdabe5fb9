// The core's terms in Python's: a signature for resolving a miss, and the plan that comes back.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include "eager/entry.h"
#include "eager/signature.h"

// All of it needs the GIL.
namespace tn::eager {

// Walks the arguments in the order in which the signature was taken and puts references in place of
// tensors and scalar operands, so that Python sees the same numbering.
class ArgumentConverter {
 public:
  explicit ArgumentConverter(const Signature& signature) : signature_(signature) {}

  // `schema` may be null where the argument has none.
  pybind11::object convert(const c10::Argument* schema, size_t index, const c10::IValue& value);

 private:
  bool is_operand(const c10::IValue& value) const;
  pybind11::object tensor(const at::Tensor& tensor);

  const Signature& signature_;
  size_t index_ = 0;
  uint32_t tensor_ = 0;
  uint32_t scalar_ = 0;
};

pybind11::list describe_tensors(const Signature& signature);
pybind11::list describe_scalars(const Signature& signature);
// The words, as part of the key on disk.
pybind11::bytes key_of(const Signature& signature);

// Reads executable, operands, outputs and RNG use of a plan.
void fill_program(const pybind11::dict& plan, Entry& entry);

// Runs `call`, giving an exception of Python's to C++ as one that keeps its type and traceback.
template <typename Call>
auto carrying_python_errors(const Call& call) {
  try {
    return call();
  } catch (pybind11::error_already_set& error) {
    python_error carried;
    error.restore();
    carried.persist();
    throw carried;
  }
}

}  // namespace tn::eager
