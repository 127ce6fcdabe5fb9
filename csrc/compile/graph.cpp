#include "compile/graph.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/TensorImpl.h>

#include <utility>

#include "eager/kernel.h"
#include "runtime/metrics.h"

namespace tn::compile {
namespace {

using Tensors = c10::SmallVector<at::Tensor, 8>;

// Programs read memory, which lazy conjugates and negatives have not been written to yet. Tensors
// on the CPU that cannot be scalar operands go to the device, as `.to` would take them. Gives the
// originals by position, which the graph may write; empty where none was moved.
std::vector<at::Tensor> adopt_host_tensors(torch::jit::Stack& stack, c10::Device device) {
  std::vector<at::Tensor> originals;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!stack[i].isTensor()) {
      continue;
    }
    if (const at::Tensor& tensor = stack[i].toTensor(); tensor.is_conj() || tensor.is_neg()) {
      stack[i] = tensor.resolve_conj().resolve_neg();
    }
    if (!stack[i].toTensor().device().is_cpu()) {
      continue;
    }
    originals.resize(stack.size());
    originals[i] = stack[i].toTensor();
    if (originals[i].dim() > 0) {
      stack[i] = originals[i].to(device);
    }
  }
  return originals;
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
  runtime::counters().programs_dropped.fetch_add(table_.insert(signature, hash, plan),
                                                 std::memory_order_relaxed);
  return plan;
}

std::vector<c10::IValue> Graph::run(torch::jit::Stack arguments) {
  TORCH_CHECK(arguments.size() == policies_.size(), name_, " takes ", policies_.size(),
              " arguments, not ", arguments.size());
  calls_.fetch_add(1, std::memory_order_relaxed);
  const std::vector<at::Tensor> originals =
      adopt_host_tensors(arguments, {c10::DeviceType::PrivateUse1, device_});
  eager::Signature signature;
  signature.device = device_;
  eager::take_signature(policies_, arguments, signature);
  const PlanPtr plan = plan_for(arguments, signature);
  if (plan->eager) {
    for (size_t i = 0; i < originals.size(); ++i) {
      if (originals[i].defined()) {
        arguments[i] = originals[i];
      }
    }
    return run_eagerly_(arguments);
  }
  Tensors outputs;
  eager::launch(plan->entry, name_.c_str(), signature, outputs);
  std::vector<c10::IValue> results;
  results.reserve(plan->results.size());
  for (const Result& result : plan->results) {
    results.push_back(make_result(result, outputs, arguments));
  }
  for (const HostWrite& write : plan->host_writes) {
    originals[write.argument].copy_(outputs[write.output]);
  }
  return results;
}

}  // namespace tn::compile
