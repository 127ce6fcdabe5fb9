// Ops that touch no data: factories, views, storage surgery, and the copies' entry points.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/NonSymbolicBC.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "eager/copy.h"
#include "eager/kernel.h"
#include "eager/resize.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace tn::eager {
namespace {

using runtime::Runtime;

c10::DeviceIndex device_index(std::optional<c10::Device> device) {
  const c10::DeviceIndex index = device.has_value() && device->has_index()
                                     ? device->index()
                                     : Runtime::instance().current_device();
  Runtime::instance().check_index(index);
  return index;
}

void check_options(std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                   std::optional<bool> pin_memory) {
  TORCH_CHECK(!layout.has_value() || *layout == c10::kStrided,
              "empty: neuron tensors are strided, got ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  runtime::to_pjrt(c10::dtype_or_default(dtype));
}

at::Tensor empty_on(c10::IntArrayRef size, c10::ScalarType dtype, c10::DeviceIndex device,
                    std::optional<c10::IntArrayRef> stride, c10::MemoryFormat format) {
  const runtime::AllocationScope scope("aten::empty");
  const size_t itemsize = c10::elementSize(dtype);
  at::detail::check_size_nonnegative(size);
  const size_t nbytes = stride.has_value()
                            ? at::detail::computeStorageNbytes(size, *stride, itemsize)
                            : at::detail::computeStorageNbytesContiguous(size, itemsize);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                       runtime::allocate(nbytes, device),
                                                       &runtime::device_allocator(),
                                                       /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (stride.has_value()) {
    impl->set_sizes_and_strides(size, *stride);
  } else {
    impl->set_sizes_contiguous(size);
    impl->empty_tensor_restride(format);
  }
  return tensor;
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  check_options(dtype, layout, pin_memory);
  TORCH_CHECK(
      format.value_or(c10::MemoryFormat::Contiguous) != c10::MemoryFormat::Preserve,
      "empty: memory_format=torch.preserve_format needs a tensor to preserve the format of");
  return empty_on(size, c10::dtype_or_default(dtype), device_index(device), std::nullopt,
                  format.value_or(c10::MemoryFormat::Contiguous));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(dtype, layout, pin_memory);
  TORCH_CHECK(size.size() == stride.size(), "dimensionality of sizes (", size.size(),
              ") must match dimensionality of strides (", stride.size(), ")");
  return empty_on(size, c10::dtype_or_default(dtype), device_index(device), stride,
                  c10::MemoryFormat::Contiguous);
}

// Makes the storage large enough for the tensor's present sizes, strides and offset.
void fit_storage(const at::Tensor& self) {
  const size_t needed =
      at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.element_size(),
                                       static_cast<size_t>(self.storage_offset()));
  if (self.numel() > 0 && needed > self.storage().nbytes()) {
    TORCH_CHECK(self.storage().resizable(), "Trying to resize storage that is not resizable");
    resize_storage(self.storage(), needed);
  }
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<c10::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != size) {
    impl->set_sizes_contiguous(size);
  }
  if (format.has_value()) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  fit_storage(self);
  return self;
}

at::Tensor& set_storage_view(at::Tensor& self, c10::Storage source, int64_t offset,
                             c10::IntArrayRef size, c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() == nullptr || (stride.empty() && !size.empty())) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  fit_storage(self);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source) {
  const auto length = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage_view(self, std::move(source), 0, {length}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) {
    return self;
  }
  return set_storage_view(self, source.storage(), source.storage_offset(), source.sizes(),
                          source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  const auto options = self.options();
  const at::Tensor fresh = at::empty({0}, options);
  return set_storage_view(self, fresh.storage(), 0, {0}, {});
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) {
  return at::native::view(self, size);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  at::Tensor result = target;
  return copy_(result, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  at::native::resize_output(target, self.sizes());
  at::Tensor result = target;
  return copy_(result, self, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) { return to_host(self).item(); }

// Where this holds `.data =` and Module.to put new contents into a tensor instead of replacing it,
// so that optimizers and tied weights keep theirs. PyTorch's own rule leaves out PrivateUse1.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto is_plain = [](const at::Tensor& tensor) {
    return (tensor.is_cpu() || tensor.is_privateuseone()) &&
           tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Dense));
  };
  return is_plain(self) && is_plain(from);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  runtime::device_allocator().recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  const size_t kept = std::min(nbytes, storage.nbytes());
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  const c10::DeviceIndex device = storage.device().index();
  c10::DataPtr previous = impl->set_data_ptr(runtime::allocate(nbytes, device));
  const size_t old_size = impl->nbytes();
  impl->set_nbytes(nbytes);
  if (kept == 0 || !runtime::handle_of(previous).value()) {
    return;
  }
  const auto bytes_of = [&](c10::Storage source) {
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        std::move(source), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::scalarTypeToTypeMeta(c10::kByte));
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(kept)});
    return tensor;
  };
  const c10::Storage old_storage(
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), old_size,
                                            std::move(previous), &runtime::device_allocator(),
                                            /*resizable=*/false));
  at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor target = bytes_of(storage);
  copy_(target, bytes_of(old_storage), false);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("as_strided_", TORCH_FN(at::native::as_strided__symint));
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage_view);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_empty);
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("record_stream", &record_stream);
}

// Copies resolve lazy conjugation and negation themselves.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace tn::eager
