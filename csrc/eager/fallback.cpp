#include "eager/fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_to_copy.h>
#include <torch/library.h>

#include <string_view>

#include "eager/miss.h"
#include "runtime/device.h"
#include "runtime/generator.h"

namespace tn::eager {
namespace {

// Advancing a device generator by this many offsets pays for one CPU random op.
constexpr uint64_t kFallbackOffsets = 4;

// A CPU kernel cannot draw from a device generator: give it one seeded from the device's state.
void replace_generators(torch::jit::Stack& stack, size_t count) {
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (!stack[i].isGenerator() || stack[i].toGenerator().device().is_cpu()) {
      continue;
    }
    auto* const philox = at::check_generator<runtime::NeuronGenerator>(stack[i].toGenerator());
    std::lock_guard<std::mutex> guard(philox->mutex_);
    const auto [seed, offset] = philox->reserve(kFallbackOffsets);
    stack[i] = at::make_generator<at::CPUGeneratorImpl>(seed + offset);
  }
}

bool may_index_from_host(std::string_view name) {
  return name.starts_with("aten::index") || name.starts_with("aten::_index_put") ||
         name.starts_with("aten::_unsafe_index");
}

c10::IValue to_device(const c10::IValue& value, c10::Device device) {
  const auto move = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.device().is_cpu() ? tensor.to(device) : tensor;
  };
  if (value.isTensor()) {
    return {move(value.toTensor())};
  }
  c10::List<std::optional<at::Tensor>> moved;
  for (const c10::IValue& item : value.toListRef()) {
    moved.push_back(item.isNone() ? std::nullopt
                                  : std::optional<at::Tensor>(move(item.toTensor())));
  }
  return {moved};
}

bool is_index_argument(const c10::Argument& argument) {
  return argument.name() == "indices" || argument.name() == "index";
}

constexpr const char* kSparse = "it works on sparse tensors and is no composition of dense ops";
constexpr const char* kNested = "it works on nested tensors and is no composition of dense ops";

void fall_back(const c10::OperatorHandle& handle, c10::DispatchKey host, const char* reason,
               torch::jit::Stack* stack) {
  Operator& op = operator_of(handle);
  announce_fallback(op, reason);
  run_on_cpu(op, *stack, host);
}

void coo_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  fall_back(handle, c10::DispatchKey::SparseCPU, kSparse, stack);
}

void nested_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  fall_back(handle, c10::DispatchKey::NestedTensorCPU, kNested, stack);
}

}  // namespace

void run_on_cpu(Operator& op, torch::jit::Stack& stack, c10::DispatchKey host) {
  replace_generators(stack, op.arguments().size());
  at::native::cpu_fallback(op.handle(), &stack, /*error_on_views=*/false, host);
}

void compressed_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  fall_back(handle, c10::DispatchKey::SparseCsrCPU, kSparse, stack);
}

void adopt_host_tensors(Operator& op, torch::jit::Stack& stack, const Signature& signature) {
  const c10::Device device(c10::DeviceType::PrivateUse1, signature.device);
  const size_t base = stack.size() - op.arguments().size();
  const auto& arguments = op.handle().schema().arguments();
  for (const size_t index : signature.host_tensors) {
    const c10::IValue& value = stack[base + index];
    const bool allowed = !signature.tensors.empty() && may_index_from_host(op.name()) &&
                         is_index_argument(arguments[index]);
    c10::Device found = c10::kCPU;
    if (value.isTensor()) {
      found = value.toTensor().device();
    }
    TORCH_CHECK(allowed && found.is_cpu(),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                device, " and ", found, "! (when checking argument for argument ",
                arguments[index].name(), " in method ", op.name(), ")");
    stack[base + index] = to_device(value, device);
  }
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&coo_fallback>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compressed_fallback>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&nested_fallback>());
}

}  // namespace tn::eager
