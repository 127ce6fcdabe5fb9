#include "eager/kernel.h"

#include <ATen/Context.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include "eager/fallback.h"
#include "eager/lazy.h"
#include "eager/miss.h"
#include "eager/scalars.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/generator.h"
#include "runtime/metrics.h"

namespace tn::eager {
namespace {

using runtime::Value;
using runtime::ValuePtr;

ValuePtr random_state(const Entry& entry, const Signature& signature) {
  const at::Generator& generator = signature.generator.has_value() && signature.generator->defined()
                                       ? *signature.generator
                                       : runtime::default_generator(signature.device);
  auto* const philox = at::check_generator<runtime::NeuronGenerator>(generator);
  std::pair<uint64_t, uint64_t> state;
  {
    std::lock_guard<std::mutex> guard(philox->mutex_);
    state = philox->reserve(entry.random_offset);
  }
  const uint64_t parts[2] = {state.first, state.second};
  return runtime::value_from_host(signature.device, parts, c10::ScalarType::UInt64, 2);
}

void gather_inputs(const Entry& entry, Signature& signature, runtime::Task& task) {
  task.inputs.reserve(entry.operands.size());
  for (const Operand& operand : entry.operands) {
    switch (operand.kind) {
      case Operand::Kind::kStorage:
        task.inputs.push_back(signature.tensors[operand.index].value);
        break;
      case Operand::Kind::kScalar:
        task.inputs.push_back(scalar_value(signature.device, signature.scalars[operand.index]));
        break;
      case Operand::Kind::kOffset:
        task.inputs.push_back(
            index_value(signature.device, signature.tensors[operand.index].impl->storage_offset()));
        break;
      case Operand::Kind::kRandom:
        task.inputs.push_back(random_state(entry, signature));
        break;
    }
  }
}

void make_outputs(const Entry& entry, const Signature& signature, runtime::Task& task,
                  c10::SmallVectorImpl<at::Tensor>& fresh) {
  runtime::LaunchQueue& queue = runtime::Runtime::instance().queue(signature.device);
  task.outputs.reserve(entry.outputs.size());
  fresh.reserve(entry.outputs.size());
  for (const Output& output : entry.outputs) {
    auto value =
        c10::make_intrusive<Value>(Value::State::kPending, output.dtype, output.numel, &queue);
    task.outputs.push_back(value);
    if (output.fresh) {
      fresh.push_back(make_tensor(output.sizes, output.strides, output.dtype, signature.device,
                                  std::move(value), output.numel));
    } else {
      fresh.emplace_back();
    }
  }
}

// A bounded program computes at most as many rows as the shapes allow; the count comes with them.
// The storage, too, ends where its tensor does: who saves it, or takes it as a buffer (nested
// tensors), sees what other devices give.
void narrow_bounded(const Entry& entry, c10::SmallVector<at::Tensor, 4>& fresh) {
  const Output& last = entry.outputs.back();
  std::vector<int64_t> counts(static_cast<size_t>(last.numel));
  runtime::value_to_host(*runtime::handle_of(*fresh.back().unsafeGetTensorImpl()).value(),
                         counts.data());
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    if (entry.outputs[i].count >= 0) {
      at::TensorImpl* impl = fresh[i].unsafeGetTensorImpl();
      std::vector<int64_t> sizes = entry.outputs[i].sizes;
      sizes[0] = counts[static_cast<size_t>(entry.outputs[i].count)];
      impl->set_sizes_and_strides(sizes, entry.outputs[i].strides);
      impl->unsafe_storage().set_nbytes(static_cast<size_t>(impl->numel()) * impl->itemsize());
    }
  }
}

void push_returns(const Entry& entry, size_t argument_count,
                  const c10::SmallVector<at::Tensor, 4>& fresh, torch::jit::Stack& stack) {
  const size_t base = stack.size() - argument_count;
  c10::SmallVector<c10::IValue, 4> results;
  for (const Return& item : entry.returns) {
    switch (item.kind) {
      case Return::Kind::kOutput:
        results.emplace_back(fresh[item.indices[0]]);
        break;
      case Return::Kind::kArgument:
        results.push_back(stack[base + item.indices[0]]);
        break;
      case Return::Kind::kUndefined:
        results.emplace_back(at::Tensor());
        break;
      case Return::Kind::kNumber:
        results.emplace_back(static_cast<int64_t>(item.indices[0]));
        break;
      case Return::Kind::kList: {
        c10::List<at::Tensor> list;
        list.reserve(item.indices.size());
        for (const uint32_t index : item.indices) {
          list.push_back(fresh[index]);
        }
        results.emplace_back(std::move(list));
        break;
      }
    }
  }
  torch::jit::drop(stack, argument_count);
  for (c10::IValue& result : results) {
    stack.push_back(std::move(result));
  }
}

// Whoever watches single ops, or asked for the same results whatever ran before, gets single ops.
bool may_fuse(const Entry& entry) {
  return !entry.program->module.empty() && !entry.outputs.empty() &&
         runtime::Runtime::instance().mode() == runtime::EagerMode::kAdaptive &&
         !at::globalContext().deterministicAlgorithms() && !at::hasCallbacks() &&
         !torch::autograd::AnomalyMode::is_enabled();
}

// PyTorch's autograd layer counts the writes to single tensors; those to lists are for the kernel
// to count.
void count_list_writes(const Operator& op, const torch::jit::Stack& stack) {
  const size_t base = stack.size() - op.arguments().size();
  for (size_t i = 0; i < op.arguments().size(); ++i) {
    const ArgumentPolicy& policy = op.arguments()[i];
    if (!policy.written || policy.kind != ArgumentPolicy::Kind::kTensorList) {
      continue;
    }
    for (const c10::IValue& item : stack[base + i].toListRef()) {
      if (item.isTensor() && item.toTensor().defined() && !item.toTensor().is_inference()) {
        item.toTensor().unsafeGetTensorImpl()->bump_version();
      }
    }
  }
}

void execute(const Entry& entry, Operator& op, Signature& signature, torch::jit::Stack& stack) {
  c10::SmallVector<at::Tensor, 4> fresh;
  launch(entry, op.name().c_str(), signature, fresh);
  if (entry.bounded) {
    narrow_bounded(entry, fresh);
  }
  push_returns(entry, op.arguments().size(), fresh, stack);
}

}  // namespace

void launch(const Entry& entry, const char* name, Signature& signature,
            c10::SmallVectorImpl<at::Tensor>& fresh) {
  const runtime::AllocationScope scope(name);
  runtime::Task task;
  task.stream = runtime::Runtime::instance().current_stream(signature.device);
  task.program = entry.program;
  task.fusable = may_fuse(entry);
  gather_inputs(entry, signature, task);
  make_outputs(entry, signature, task, fresh);
  for (TensorRef& ref : signature.tensors) {
    ref.value.reset();
  }
  // From then on the storages refer to the new values; the task holds the old ones.
  const auto publish = [&] {
    for (size_t i = 0; i < entry.outputs.size(); ++i) {
      if (!entry.outputs[i].fresh) {
        signature.tensors[entry.outputs[i].tensor].handle->exchange(task.outputs[i]);
      }
    }
  };
  runtime::Runtime::instance().submit(signature.device, std::move(task), publish);
}

at::Tensor make_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                       c10::DeviceIndex device, ValuePtr value, int64_t storage_numel) {
  const size_t nbytes = static_cast<size_t>(storage_numel) * c10::elementSize(dtype);
  c10::DataPtr data = runtime::allocate(nbytes, device);
  static_cast<runtime::StorageHandle*>(data.get_context())->exchange(std::move(value));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes, std::move(data), &runtime::device_allocator(),
      /*resizable=*/true);
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
  impl->set_sizes_and_strides(sizes, strides);
  return at::Tensor(std::move(impl));
}

void run(Operator& op, torch::jit::Stack& stack) {
  op.ensure_policy();
  if (op.precheck() != nullptr) {
    op.precheck()(torch::jit::last(stack, op.arguments().size()));
  }
  // Twice round at most after a resize of each `out=`, once after moving index tensors.
  for (int attempt = 0; attempt < 64; ++attempt) {
    Signature signature;
    take_signature(op.arguments(), stack, signature);
    if (!signature.host_tensors.empty()) {
      adopt_host_tensors(op, stack, signature);
      continue;
    }
    if (!signature.lazy_tensors.empty()) {
      run_resolved(op, stack, signature);
      return;
    }
    const size_t hash = signature.hash();
    EntryPtr entry = signature.cacheable ? op.find(signature, hash) : nullptr;
    if (entry) {
      runtime::counters().signature_hits.fetch_add(1, std::memory_order_relaxed);
      if (entry->kind == Entry::Kind::kFallback) {
        op.fallbacks.fetch_add(1, std::memory_order_relaxed);  // the first one is counted by Python
      }
    } else {
      entry = resolve_miss(op, stack, signature);
      if (signature.cacheable) {
        op.keep(signature, hash, entry);
      }
    }
    switch (entry->kind) {
      case Entry::Kind::kProgram:
        count_list_writes(op, stack);
        execute(*entry, op, signature, stack);
        return;
      case Entry::Kind::kFallback:
        count_list_writes(op, stack);
        run_on_cpu(op, stack);
        return;
      case Entry::Kind::kComposite:
        run_composite(*entry, op, stack);
        return;
      case Entry::Kind::kResize: {
        const at::Tensor tensor(c10::intrusive_ptr<at::TensorImpl>::reclaim_copy(
            signature.tensors[entry->resize_tensor].impl));
        at::native::resize_output(tensor, entry->resize_sizes);
        continue;
      }
    }
  }
  TORCH_INTERNAL_ASSERT(false, "the signature of ", op.name(), " does not settle");
}

void boxed_kernel(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                  torch::jit::Stack* stack) {
  run(operator_of(handle), *stack);
}

}  // namespace tn::eager
