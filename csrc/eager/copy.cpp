#include "eager/copy.h"

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/conj.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/PyInterpreter.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>

#include "eager/kernel.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/metrics.h"

namespace tn::eager {
namespace {

using runtime::handle_of;
using runtime::Runtime;
using runtime::Value;
using runtime::ValuePtr;

bool on_device(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// The tensor is all of its storage, in some dense order.
bool is_whole(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == handle_of(*tensor.unsafeGetTensorImpl()).nbytes();
}

// Pending conjugation and negation become data; what is returned carries neither bit.
at::Tensor resolve_bits(const at::Tensor& tensor) {
  at::Tensor result = tensor;
  if (result.is_conj()) {
    result = at::conj_physical(result.conj());
  }
  if (result.is_neg()) {
    result = at::neg(at::_neg_view(result));
  }
  return result;
}

void run_copy_program(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  static const c10::OperatorHandle handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  static Operator& op = operator_of(handle);
  torch::jit::Stack stack{self, source, non_blocking};
  run(op, stack);
}

void copy_within_device(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.scalar_type() == source.scalar_type() && self.sizes() == source.sizes() &&
      self.strides() == source.strides() && is_whole(self) && is_whole(source)) {
    // Values are immutable: sharing one is copying it.
    handle_of(*self.unsafeGetTensorImpl())
        .exchange(
            handle_of(*source.unsafeGetTensorImpl()).value_or_undefined(source.scalar_type()));
    return;
  }
  run_copy_program(self, source, non_blocking);
}

// The source's storage as seen from another device: the same view, over a copy of the value there.
at::Tensor move_to_device(const at::Tensor& source, c10::DeviceIndex device) {
  Runtime& runtime = Runtime::instance();
  ValuePtr value =
      handle_of(*source.unsafeGetTensorImpl()).value_or_undefined(source.scalar_type());
  if (runtime.ordinal(device) != runtime.ordinal(source.device().index()) &&
      value->state() != Value::State::kUndefined) {
    runtime::await_value(*value);
    auto moved = c10::make_intrusive<Value>(Value::State::kPending, value->dtype(), value->numel());
    moved->set_buffer(value->buffer().copy_to_device(*runtime.client(), runtime.ordinal(device)));
    value = std::move(moved);
  }
  const auto numel = static_cast<int64_t>(value->numel());
  const c10::ScalarType dtype = value->dtype();
  const at::Tensor flat = make_tensor({numel}, {1}, dtype, device, std::move(value), numel);
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(flat.storage()), flat.key_set(), source.dtype());
  view.unsafeGetTensorImpl()->set_storage_offset(source.storage_offset());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(source.sizes(), source.strides());
  return view;
}

void copy_from_host(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const c10::DeviceIndex device = self.device().index();
  // The CPU converts and broadcasts: what is moved then is exactly what the destination holds.
  const at::Tensor staged = is_whole(self)
                                ? at::empty_strided(self.sizes(), self.strides(),
                                                    source.options().dtype(self.scalar_type()))
                                : at::Tensor();
  if (!staged.defined()) {
    run_copy_program(self, from_host(source, self.device()), non_blocking);
    return;
  }
  const bool direct = source.scalar_type() == self.scalar_type() &&
                      source.sizes() == self.sizes() && source.strides() == self.strides() &&
                      !source.is_conj() && !source.is_neg();
  if (!direct) {
    staged.copy_(source);
  }
  const at::Tensor& data = direct ? source : staged;
  handle_of(*self.unsafeGetTensorImpl())
      .exchange(runtime::value_from_host(device, data.const_data_ptr(), self.scalar_type(),
                                         self.numel()));
}

// A CPU tensor over the device's own memory, where the plugin runs on the host and says where it
// is.
at::Tensor host_view(const at::Tensor& source, const Value& value) {
  value.buffer().ready_event().await();
  void* address = value.buffer().unsafe_host_pointer();
  if (address == nullptr) {
    return {};
  }
  auto* const bytes = static_cast<char*>(address) + source.storage_offset() * source.element_size();
  return at::from_blob(bytes, source.sizes(), source.strides(),
                       source.options().device(at::kCPU).requires_grad(false));
}

}  // namespace

at::Tensor from_host(const at::Tensor& source, c10::Device device) {
  const at::Tensor dense = source.resolve_conj().resolve_neg().contiguous();
  return make_tensor(dense.sizes(), dense.strides(), dense.scalar_type(), device.index(),
                     runtime::value_from_host(device.index(), dense.const_data_ptr(),
                                              dense.scalar_type(), dense.numel()),
                     dense.numel());
}

at::Tensor to_host(const at::Tensor& source) {
  const at::Tensor plain = resolve_bits(source);
  const auto options = plain.options().device(at::kCPU).requires_grad(false);
  if (plain.numel() == 0) {
    return at::empty_strided(plain.sizes(), plain.strides(), options);
  }
  runtime::StorageHandle& handle = handle_of(*plain.unsafeGetTensorImpl());
  int64_t extent = 1;
  for (int64_t dim = 0; dim < plain.dim(); ++dim) {
    extent += (plain.size(dim) - 1) * plain.stride(dim);
  }
  runtime::check_in_bounds(*plain.unsafeGetTensorImpl(), handle, extent);
  const ValuePtr value = handle.value_or_undefined(plain.scalar_type());
  // PyTorch's storages copy with the GIL held, and what makes the value may wait for a thread that
  // needs it.
  std::optional<py::gil_scoped_release> released;
  if (PyGILState_Check() != 0) {
    released.emplace();
  }
  const Value::State state = runtime::demand(*value);
  if (state == Value::State::kFailed) {
    runtime::raise(*value->failure());
  }
  if (state == Value::State::kUndefined) {
    return at::zeros(plain.sizes(), options);
  }
  if (const at::Tensor view = host_view(plain, *value); view.defined()) {
    runtime::counters().bytes_d2h.fetch_add(plain.nbytes(), std::memory_order_relaxed);
    return view.clone();
  }
  if (is_whole(plain)) {
    const at::Tensor result = at::empty_strided(plain.sizes(), plain.strides(), options);
    runtime::value_to_host(*value, result.mutable_data_ptr());
    return result;
  }
  return to_host(plain.clone(at::MemoryFormat::Contiguous));
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source) || (self.numel() == 0 && source.numel() == 0)) {
    return self;
  }
  TORCH_CHECK(self.defined() && source.defined(), "copy_: undefined tensor");
  if (self.is_conj()) {
    at::Tensor plain = self.conj();
    copy_(plain, source.conj(), non_blocking);
    return self;
  }
  if (self.is_neg()) {
    at::Tensor plain = at::_neg_view(self);
    copy_(plain, at::_neg_view(source), non_blocking);
    return self;
  }
  const at::Tensor expanded = source.sizes() == self.sizes() ? source : source.expand_as(self);
  if (!on_device(self)) {
    self.copy_(to_host(expanded), non_blocking);
  } else if (!on_device(source)) {
    TORCH_CHECK(source.device().is_cpu(), "cannot copy from ", source.device(), " to ",
                self.device());
    copy_from_host(self, expanded, non_blocking);
  } else {
    const at::Tensor plain = resolve_bits(expanded);
    const bool local = plain.device() == self.device();
    copy_within_device(self, local ? plain : move_to_device(plain, self.device().index()),
                       non_blocking);
  }
  return self;
}

}  // namespace tn::eager
