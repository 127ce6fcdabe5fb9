#include "compile/graph.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "eager/kernel.h"
#include "runtime/metrics.h"

namespace tn::compile {
namespace {

using Tensors = c10::SmallVector<at::Tensor, 8>;

// What the program is given in place of a tensor. Programs read memory, which lazy conjugates and
// negatives have not been written to yet. Tensors on the CPU that cannot be scalar operands go to
// the device, as `.to` would take them.
at::Tensor adopted(const at::Tensor& tensor, c10::Device device) {
  const at::Tensor resolved = tensor.resolve_conj().resolve_neg();
  return resolved.is_cpu() && resolved.dim() > 0 ? resolved.to(device) : resolved;
}

// The arguments with all tensors adopted; nothing where they can be taken as they are.
std::optional<torch::jit::Stack> adopt(const torch::jit::Stack& given, c10::Device device) {
  std::optional<torch::jit::Stack> stack;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].isTensor()) {
      continue;
    }
    const at::Tensor& tensor = given[i].toTensor();
    if (tensor.is_conj() || tensor.is_neg() || (tensor.is_cpu() && tensor.dim() > 0)) {
      if (!stack) {
        stack = given;
      }
      (*stack)[i] = adopted(tensor, device);
    }
  }
  return stack;
}

at::Tensor view_of(const at::Tensor& base, const Result& result) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(base.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(result.dtype));
  impl->set_sizes_and_strides(result.sizes, result.strides, base.storage_offset() + result.offset);
  return at::Tensor(std::move(impl));
}

c10::IValue make_result(const Result& result, const Tensors& outputs,
                        const torch::jit::Stack& stack) {
  if (result.kind == Result::Kind::kConstant) {
    return result.constant;
  }
  if (result.kind == Result::Kind::kMultiple) {
    return stack[result.index].toSymInt() * result.factor;
  }
  at::Tensor tensor =
      result.kind == Result::Kind::kOutput ? outputs[result.index] : stack[result.index].toTensor();
  if (result.view) {
    tensor = view_of(tensor, result);
  }
  return result.on_host ? tensor.to(c10::kCPU) : tensor;
}

}  // namespace

Graph::Graph(std::string name, c10::DeviceIndex device, const std::vector<bool>& number_operands,
             size_t programs, Resolve resolve, RunEagerly run_eagerly)
    : name_(std::move(name)),
      device_(device),
      policies_(number_operands.size()),
      table_(programs),
      resolve_(std::move(resolve)),
      run_eagerly_(std::move(run_eagerly)) {
  for (size_t i = 0; i < number_operands.size(); ++i) {
    if (number_operands[i]) {
      policies_[i].kind = eager::ArgumentPolicy::Kind::kScalar;
      policies_[i].operand = true;
    }
  }
}

PlanPtr Graph::plan_for(const torch::jit::Stack& stack, const eager::Signature& signature) {
  const size_t hash = signature.hash();
  PlanPtr plan = table_.find(signature, hash);
  if (plan) {
    runtime::counters().signature_hits.fetch_add(1, std::memory_order_relaxed);
    return plan;
  }
  plan = resolve_(stack, signature);
  words_.store(std::max(words_.load(std::memory_order_relaxed), signature.words.size()),
               std::memory_order_relaxed);
  runtime::counters().programs_dropped.fetch_add(table_.insert(signature, hash, plan),
                                                 std::memory_order_relaxed);
  return plan;
}

std::vector<c10::IValue> Graph::run(const torch::jit::Stack& given) {
  TORCH_CHECK(given.size() == policies_.size(), name_, " takes ", policies_.size(),
              " arguments, not ", given.size());
  calls_.fetch_add(1, std::memory_order_relaxed);
  const std::optional<torch::jit::Stack> moved =
      adopt(given, {c10::DeviceType::PrivateUse1, device_});
  const torch::jit::Stack& arguments = moved ? *moved : given;
  eager::Signature signature;
  signature.device = device_;
  signature.tensors.reserve(arguments.size());
  signature.words.reserve(words_.load(std::memory_order_relaxed));
  eager::take_signature(policies_, arguments, signature);
  const PlanPtr plan = plan_for(arguments, signature);
  if (plan->eager) {
    return run_eagerly_(given);
  }
  Tensors outputs;
  eager::launch(plan->entry, name_.c_str(), signature, outputs);
  std::vector<c10::IValue> results;
  results.reserve(plan->results.size());
  for (const Result& result : plan->results) {
    results.push_back(make_result(result, outputs, arguments));
  }
  for (const HostWrite& write : plan->host_writes) {
    given[write.argument].toTensor().copy_(outputs[write.output]);
  }
  return results;
}

}  // namespace tn::compile
