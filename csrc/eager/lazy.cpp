#include "eager/lazy.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include <utility>

#include "eager/kernel.h"

namespace tn::eager {
namespace {

// A tensor that the op writes to: the argument, and what stands in its place.
using Replaced = c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2>;

at::Tensor resolve(const at::Tensor& tensor, bool written, Replaced& replaced) {
  if (!tensor.defined() || (!tensor.is_conj() && !tensor.is_neg())) {
    return tensor;
  }
  at::Tensor resolved = tensor.resolve_conj().resolve_neg();
  if (written) {
    replaced.emplace_back(tensor, resolved);
  }
  return resolved;
}

c10::IValue resolve(const c10::IValue& value, bool written, Replaced& replaced) {
  if (value.isTensor()) {
    return resolve(value.toTensor(), written, replaced);
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& item : value.toTensorVector()) {
      list.push_back(resolve(item, written, replaced));
    }
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const std::optional<at::Tensor>& item : value.toOptionalTensorVector()) {
    list.push_back(item.has_value() ? std::optional(resolve(*item, written, replaced)) : item);
  }
  return list;
}

}  // namespace

void run_resolved(Operator& op, torch::jit::Stack& stack, const Signature& signature) {
  const size_t base = stack.size() - op.arguments().size();
  Replaced replaced;
  for (const size_t index : signature.lazy_tensors) {
    stack[base + index] = resolve(stack[base + index], op.arguments()[index].written, replaced);
  }
  run(op, stack);
  for (const auto& [argument, resolved] : replaced) {
    at::native::resize_output(argument, resolved.sizes());
    argument.copy_(resolved);
    for (size_t i = base; i < stack.size(); ++i) {
      if (stack[i].isTensor() && stack[i].toTensor().is_same(resolved)) {
        stack[i] = argument;
      }
    }
  }
}

}  // namespace tn::eager
