// Nested tensors of the strided layout: what PyTorch has as kernels of the CPU and of CUDA only,
// made of dense device ops.
#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <torch/library.h>

#include "eager/sparse.h"

namespace tn::eager {
namespace {

using at::native::get_nested_sizes;
using at::native::get_nested_tensor_impl;
using at::native::nested_tensor_impl_is_contiguous;

// [parts, d], on the host: the sizes with 1 in place of the last one.
at::Tensor sizes_without_last(const at::Tensor& sizes) {
  at::Tensor reduced = sizes.clone();
  reduced.select(1, -1).fill_(1);
  return reduced;
}

// [numel], on the buffer's device: the row along the last dimension that each element is of.
at::Tensor row_of_elements(const at::Tensor& nested) {
  const at::Tensor& sizes = get_nested_sizes(nested);
  const at::Tensor length = sizes.select(1, -1);
  const at::Tensor rows = sizes_without_last(sizes).prod(1);
  const at::Tensor lengths = length.repeat_interleave(rows);
  return at::arange(lengths.numel(), lengths.options())
      .repeat_interleave(lengths)
      .to(at::native::get_buffer(nested).device());
}

at::Tensor sum_last(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim,
                    std::optional<at::ScalarType> dtype) {
  TORCH_CHECK(nested_tensor_impl_is_contiguous(get_nested_tensor_impl(self)),
              "NestedTensor does not support reductions when the input is noncontiguous for now.");
  TORCH_CHECK(dims.has_value() && dims->size() == 1,
              "NestedTensor only allows reduction of a single dimension for now.");
  const int64_t dim = at::maybe_wrap_dim(dims->front(), self.dim());
  TORCH_CHECK(dim == self.dim() - 1,
              "NestedTensor can only be reduced across the last dimension for now got dimension ",
              dim, " instead.");
  TORCH_CHECK(keepdim, "NestedTensor always requires keepdim=True for now.");
  TORCH_CHECK(!dtype.has_value(), "NestedTensor does not support dtype argument for now.");
  const at::Tensor sizes = sizes_without_last(get_nested_sizes(self));
  const int64_t rows = sizes.prod(1).sum().item<int64_t>();
  const at::Tensor buffer = at::native::get_buffer(self);
  return at::native::wrap_buffer(sum_rows(buffer, row_of_elements(self), rows), sizes);
}

at::Tensor sum_backward(const at::Tensor& grad, const at::Tensor& self,
                        at::OptionalIntArrayRef /*dims*/, bool /*keepdim*/) {
  const at::Tensor buffer = at::native::get_buffer(grad.contiguous());
  return at::native::wrap_buffer(buffer.index_select(0, row_of_elements(self)),
                                 get_nested_sizes(self));
}

// As on the CPU, of the padded tensor: the places past the end of a part hold the bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> transform_bias_rescale_qkv(const at::Tensor& qkv,
                                                                          const at::Tensor& bias,
                                                                          int64_t heads) {
  return at::_transform_bias_rescale_qkv(at::nested_to_padded_tensor(qkv, 0), bias, heads);
}

// [rows, *shape]: the buffer of a contiguous nested tensor whose last dimensions are `shape`.
at::Tensor rows_to_normalize(const at::Tensor& nested, c10::IntArrayRef shape) {
  const auto* impl = get_nested_tensor_impl(nested);
  TORCH_CHECK(nested_tensor_impl_is_contiguous(impl),
              "NestedTensor must be contiguous for layer_norm");
  const auto count = static_cast<int64_t>(shape.size());
  TORCH_CHECK(count >= 1 && count < nested.dim(), "Expected normalized_shape of 1 to ",
              nested.dim() - 1, " dimensions, but got ", shape);
  for (int64_t i = 1; i <= count; ++i) {
    TORCH_CHECK(impl->opt_size(nested.dim() - i) == shape[static_cast<size_t>(count - i)],
                "Given normalized_shape=", shape, ", expected the parts' last dimensions to have ",
                "these sizes, but got parts of sizes ", impl->get_nested_sizes());
  }
  std::vector<int64_t> sizes{-1};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return at::native::get_buffer(nested).reshape(sizes);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const at::Tensor& input,
                                                          c10::IntArrayRef shape,
                                                          const std::optional<at::Tensor>& weight,
                                                          const std::optional<at::Tensor>& bias,
                                                          double eps) {
  const auto is_dense = [](const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() && tensor->defined() && !tensor->is_nested();
  };
  TORCH_CHECK(is_dense(weight) && is_dense(bias),
              "NestedTensor layer_norm requires weight and bias");
  auto [output, mean, rstd] =
      at::native_layer_norm(rows_to_normalize(input, shape), shape, weight, bias, eps);
  return {at::native::wrap_buffer(output.reshape(-1), get_nested_sizes(input)), mean, rstd};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(
    const at::Tensor& grad, const at::Tensor& input, c10::IntArrayRef shape, const at::Tensor& mean,
    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, std::array<bool, 3> mask) {
  auto [by_input, by_weight, by_bias] = at::native_layer_norm_backward(
      rows_to_normalize(grad.contiguous(), shape), rows_to_normalize(input, shape), shape, mean,
      rstd, weight, bias, mask);
  if (mask[0]) {
    by_input = at::native::wrap_buffer(by_input.reshape(-1), get_nested_sizes(input));
  }
  return {by_input, by_weight, by_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("native_layer_norm", TORCH_FN(layer_norm));
  m.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
  m.impl("sum.dim_IntList", TORCH_FN(sum_last));
  m.impl("_nested_sum_backward", TORCH_FN(sum_backward));
  m.impl("_transform_bias_rescale_qkv", TORCH_FN(transform_bias_rescale_qkv));
}

}  // namespace tn::eager
