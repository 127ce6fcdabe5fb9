// The sparse tensors' functions that PyTorch writes in terms of dense ops on indices and values:
// here, as on its own devices, they are PyTorch's, and the dense ops inside them run on the device.
#include <ATen/NativeFunctions.h>
#include <torch/library.h>

#include "eager/overload.h"

namespace tn::eager {
namespace {

// A pointwise function that keeps zeros: out of place, in place and with out=.
#define TN_POINTWISE(op, layout)                        \
  m.impl(#op, TORCH_FN(at::native::op##layout));        \
  m.impl(#op "_", TORCH_FN(at::native::op##layout##_)); \
  m.impl(#op ".out", TORCH_FN(at::native::op##layout##_out))

// Those that all sparse layouts have.
#define TN_POINTWISE_OF_ALL(layout) \
  TN_POINTWISE(abs, layout);        \
  TN_POINTWISE(sgn, layout);        \
  TN_POINTWISE(asinh, layout);      \
  TN_POINTWISE(atanh, layout);      \
  TN_POINTWISE(asin, layout);       \
  TN_POINTWISE(atan, layout);       \
  TN_POINTWISE(ceil, layout);       \
  TN_POINTWISE(erf, layout);        \
  TN_POINTWISE(expm1, layout);      \
  TN_POINTWISE(floor, layout);      \
  TN_POINTWISE(frac, layout);       \
  TN_POINTWISE(log1p, layout);      \
  TN_POINTWISE(rad2deg, layout);    \
  TN_POINTWISE(deg2rad, layout);    \
  TN_POINTWISE(round, layout);      \
  TN_POINTWISE(sin, layout);        \
  TN_POINTWISE(sinh, layout);       \
  TN_POINTWISE(sqrt, layout);       \
  TN_POINTWISE(tan, layout);        \
  TN_POINTWISE(tanh, layout);       \
  TN_POINTWISE(trunc, layout);      \
  TN_POINTWISE(erfinv, layout);     \
  TN_POINTWISE(sign, layout)

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  TN_POINTWISE_OF_ALL(_sparse);
  TN_POINTWISE(nan_to_num, _sparse);
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real_sparse));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex_sparse));
  m.impl("conj_physical.out", TORCH_FN(at::native::conj_physical_out_sparse));
  m.impl("add.Tensor", TORCH_FN(at::native::add_sparse));
  m.impl("add_.Tensor", TORCH_FN(at::native::add_sparse_));
  m.impl("_sparse_broadcast_to", TORCH_FN(at::native::sparse_broadcast_to));
  m.impl("cat", TORCH_FN(at::native::cat_sparse));
  m.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  m.impl("div.Tensor",
         overload<at::Tensor(const at::Tensor&, const at::Tensor&)>(&at::native::div_sparse));
  m.impl("div_.Tensor",
         overload<at::Tensor&(at::Tensor&, const at::Tensor&)>(&at::native::div_sparse_));
  m.impl("div.out", overload<at::Tensor&(const at::Tensor&, const at::Tensor&, at::Tensor&)>(
                        &at::native::div_out_sparse_zerodim));
  m.impl(
      "div.Tensor_mode",
      overload<at::Tensor(const at::Tensor&, const at::Tensor&, std::optional<std::string_view>)>(
          &at::native::div_sparse));
  m.impl("div_.Tensor_mode",
         overload<at::Tensor&(at::Tensor&, const at::Tensor&, std::optional<std::string_view>)>(
             &at::native::div_sparse_));
  m.impl("div.out_mode",
         overload<at::Tensor&(const at::Tensor&, const at::Tensor&, std::optional<std::string_view>,
                              at::Tensor&)>(&at::native::div_out_sparse_zerodim));
  m.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse));
  m.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_coo));
  m.impl("floor_divide", TORCH_FN(at::native::floor_divide_sparse));
  m.impl("floor_divide_.Tensor", TORCH_FN(at::native::floor_divide_sparse_));
  m.impl("floor_divide.out", TORCH_FN(at::native::floor_divide_out_sparse_zerodim));
  m.impl("isnan", TORCH_FN(at::native::isnan_sparse));
  m.impl("mm", overload<at::Tensor(const at::Tensor&, const at::Tensor&)>(&at::native::_sparse_mm));
  m.impl("mm.out", TORCH_FN(at::native::_sparse_mm_out));
  m.impl("mul.Tensor", TORCH_FN(at::native::mul_sparse));
  m.impl("mul_.Tensor", TORCH_FN(at::native::mul_sparse_));
  m.impl("mv", TORCH_FN(at::native::mv_sparse));
  m.impl("narrow_copy", TORCH_FN(at::native::narrow_copy_sparse));
  m.impl("permute", TORCH_FN(at::native::permute_sparse_coo));
  m.impl("neg", TORCH_FN(at::native::neg_sparse));
  m.impl("neg_", TORCH_FN(at::native::neg_sparse_));
  m.impl("neg.out", TORCH_FN(at::native::neg_out_sparse));
  m.impl("relu", TORCH_FN(at::native::relu_sparse));
  m.impl("relu_", TORCH_FN(at::native::relu_sparse_));
  m.impl("sum", TORCH_FN(at::native::sum_coo));
  m.impl("sum.dim_IntList", TORCH_FN(at::native::sum_sparse_coo));
  m.impl("threshold_backward.grad_input", TORCH_FN(at::native::threshold_backward_sparse_out));
  m.impl("threshold_backward", TORCH_FN(at::native::threshold_backward_sparse));
  m.impl("unsqueeze", TORCH_FN(at::native::unsqueeze_sparse));
  m.impl("zeros.out", TORCH_FN(at::native::zeros_sparse_out));
  m.impl("native_norm",
         overload<at::Tensor(const at::Tensor&, const at::Scalar&)>(&at::native::norm_sparse));
  m.impl("native_norm.ScalarOpt_dim_dtype",
         overload<at::Tensor(const at::Tensor&, const std::optional<at::Scalar>&, at::IntArrayRef,
                             bool, std::optional<at::ScalarType>)>(&at::native::norm_sparse));
  m.impl("norm.ScalarOpt_dim_dtype", TORCH_FN(at::native::sparse_dtype_norm));
  m.impl("norm.ScalarOpt_dim", TORCH_FN(at::native::sparse_norm));
  m.impl("clone", TORCH_FN(at::native::clone_sparse));
  m.impl("resize_as_sparse_", TORCH_FN(at::native::resize_as_sparse_));
  m.impl("zero_", TORCH_FN(at::native::zero_sparse_));
  m.impl("sub.out", TORCH_FN(at::native::sub_out_sparse));
  m.impl("sub.Tensor", TORCH_FN(at::native::sub_sparse));
  m.impl("sub_.Tensor", TORCH_FN(at::native::sub_sparse_));
  m.impl("_sparse_coo_tensor_with_dims", TORCH_FN(at::native::new_with_dims_sparse));
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         TORCH_FN(at::native::new_with_dims_and_tensor_sparse_symint));
  m.impl("sparse_resize_", TORCH_FN(at::native::sparse_resize_));
  m.impl("sparse_resize_and_clear_", TORCH_FN(at::native::sparse_resize_and_clear_));
  m.impl("_to_dense", TORCH_FN(at::native::sparse_to_dense));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("_dimI", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("_dimV", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  m.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  m.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  m.impl("_values", TORCH_FN(at::native::_values_sparse));
  m.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  m.impl("indices", TORCH_FN(at::native::indices_sparse));
  m.impl("values", TORCH_FN(at::native::values_sparse));
  m.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  m.impl("_to_sparse.sparse_dim",
         overload<at::Tensor(const at::Tensor&, int64_t)>(&at::native::sparse_coo_to_sparse));
  m.impl("_to_sparse",
         overload<at::Tensor(const at::Tensor&, std::optional<at::Layout>, at::OptionalIntArrayRef,
                             std::optional<int64_t>)>(&at::native::sparse_coo_to_sparse));
  m.impl("_to_sparse_csr", TORCH_FN(at::native::coo_to_sparse_csr));
  m.impl("_to_sparse_csc", TORCH_FN(at::native::coo_to_sparse_csc));
  m.impl("_to_sparse_bsr", TORCH_FN(at::native::coo_to_sparse_bsr));
  m.impl("_to_sparse_bsc", TORCH_FN(at::native::coo_to_sparse_bsc));
  m.impl("signbit", TORCH_FN(at::native::signbit_sparse));
  m.impl("signbit.out", TORCH_FN(at::native::signbit_sparse_out));
  m.impl("any", TORCH_FN(at::native::any_sparse));
  m.impl("pow.Tensor_Scalar_out", TORCH_FN(at::native::pow_out_sparse_scalar));
  m.impl("pow.Tensor_Scalar", TORCH_FN(at::native::pow_sparse_scalar));
  m.impl("isinf", TORCH_FN(at::native::isinf_sparse));
  m.impl("isposinf", TORCH_FN(at::native::isposinf_sparse));
  m.impl("isposinf.out", TORCH_FN(at::native::isposinf_sparse_out));
  m.impl("isneginf", TORCH_FN(at::native::isneginf_sparse));
  m.impl("isneginf.out", TORCH_FN(at::native::isneginf_sparse_out));
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  TN_POINTWISE_OF_ALL(_sparse_csr);
  TN_POINTWISE(neg, _sparse_csr);
  m.impl("angle", TORCH_FN(at::native::angle_sparse_csr));
  m.impl("angle.out", TORCH_FN(at::native::angle_sparse_csr_out));
  m.impl("_conj_physical", TORCH_FN(at::native::conj_physical_sparse_csr));
  m.impl("conj_physical.out", TORCH_FN(at::native::conj_physical_sparse_csr_out));
  m.impl("conj_physical_", TORCH_FN(at::native::conj_physical_sparse_csr_));
  m.impl("add.Tensor", TORCH_FN(at::native::add_sparse_csr));
  m.impl("add_.Tensor", TORCH_FN(at::native::add_sparse_csr_));
  m.impl("copy_", TORCH_FN(at::native::copy_sparse_compressed_));
  m.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse_compressed));
  m.impl("resize_", TORCH_FN(at::native::resize_sparse_csr_));
  m.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_csr));
  m.impl("fill_.Scalar", TORCH_FN(at::native::fill_sparse_csr_));
  m.impl("isnan", TORCH_FN(at::native::isnan_sparse_csr));
  m.impl("mm", TORCH_FN(at::native::_sparse_csr_mm));
  m.impl("mm.out", TORCH_FN(at::native::_sparse_csr_mm_out));
  m.impl("mul.Tensor", TORCH_FN(at::native::mul_sparse_csr));
  m.impl("mul_.Tensor", TORCH_FN(at::native::mul_sparse_csr_));
  m.impl("mul.out", TORCH_FN(at::native::mul_out_sparse_csr));
  m.impl("mul.Scalar", TORCH_FN(at::native::mul_scalar_sparse_csr));
  m.impl("mul_.Scalar", TORCH_FN(at::native::mul__scalar_sparse_csr));
  m.impl("relu", TORCH_FN(at::native::relu_sparse_csr));
  m.impl("relu_", TORCH_FN(at::native::relu_sparse_csr_));
  m.impl("select.int", TORCH_FN(at::native::select_sparse_csr));
  m.impl("sum", TORCH_FN(at::native::sum_csr));
  m.impl("sum.dim_IntList", TORCH_FN(at::native::sum_sparse_compressed));
  m.impl("threshold_backward.grad_input",
         TORCH_FN(at::native::threshold_backward_sparse_compressed_out));
  m.impl("threshold_backward", TORCH_FN(at::native::threshold_backward_sparse_compressed));
  m.impl("clone", TORCH_FN(at::native::clone_sparse_compressed));
  m.impl("resize_as_sparse_", TORCH_FN(at::native::resize_as_sparse_compressed_));
  m.impl("zero_", TORCH_FN(at::native::zero_sparse_csr_));
  m.impl("addmm", TORCH_FN(at::native::addmm_sparse_compressed_dense));
  m.impl("sparse_mask", TORCH_FN(at::native::sparse_mask_sparse_compressed));
  m.impl("_to_dense", TORCH_FN(at::native::sparse_compressed_to_dense));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse_csr));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse_csr));
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse_csr));
  m.impl("values", TORCH_FN(at::native::values_sparse_csr));
  m.impl("crow_indices", TORCH_FN(at::native::crow_indices_sparse_csr));
  m.impl("col_indices", TORCH_FN(at::native::col_indices_sparse_csr));
  m.impl("ccol_indices", TORCH_FN(at::native::ccol_indices_sparse_csr));
  m.impl("row_indices", TORCH_FN(at::native::row_indices_sparse_csr));
  m.impl("_to_sparse.sparse_dim", overload<at::Tensor(const at::Tensor&, int64_t)>(
                                      &at::native::sparse_compressed_to_sparse));
  m.impl("signbit", TORCH_FN(at::native::signbit_sparse_csr));
  m.impl("signbit.out", TORCH_FN(at::native::signbit_sparse_csr_out));
  m.impl("normal_", TORCH_FN(at::native::normal_sparse_csr_));
  m.impl("isinf", TORCH_FN(at::native::isinf_sparse_csr));
  m.impl("isposinf", TORCH_FN(at::native::isposinf_sparse_csr));
  m.impl("isposinf.out", TORCH_FN(at::native::isposinf_sparse_csr_out));
  m.impl("isneginf", TORCH_FN(at::native::isneginf_sparse_csr));
  m.impl("isneginf.out", TORCH_FN(at::native::isneginf_sparse_csr_out));
  m.impl("select_copy.int", TORCH_FN(at::native::select_copy_sparse_csr));
}

// From a dense tensor to a sparse one.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_to_sparse.sparse_dim",
         overload<at::Tensor(const at::Tensor&, int64_t)>(&at::native::dense_to_sparse));
  m.impl("_to_sparse_bsr", TORCH_FN(at::native::dense_to_sparse_bsr));
  m.impl("_to_sparse_bsc", TORCH_FN(at::native::dense_to_sparse_bsc));
}

#undef TN_POINTWISE_OF_ALL
#undef TN_POINTWISE

}  // namespace tn::eager
