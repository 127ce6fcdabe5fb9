// Sparse CSR, CSC, BSR and BSC tensors: what PyTorch has as kernels of the CPU and of CUDA only,
// made of dense device ops.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include "eager/fallback.h"
#include "eager/miss.h"
#include "eager/sparse.h"

namespace tn::eager {
namespace {

bool is_compressed(const at::Tensor& tensor) {
  return at::sparse_csr::is_sparse_compressed(tensor);
}

bool is_strided(const at::Tensor& tensor) { return tensor.layout() == at::kStrided; }

// Makes `out` what `source` is, which has the layout of `out`.
at::Tensor& assign(at::Tensor& out, const at::Tensor& source) {
  at::native::resize_as_sparse_compressed_(out, source);
  return out.copy_(source);
}

// Dense + compressed is dense; compressed + compressed has the elements of both.
at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                    at::Tensor& out) {
  if (is_strided(self) && is_compressed(other)) {
    return at::add_out(out, self, other.to_sparse(), alpha);
  }
  if (is_compressed(self) && is_strided(other)) {
    return at::add_out(out, at::mul(other, alpha), self.to_sparse());
  }
  TORCH_CHECK(self.layout() == other.layout() && self.layout() == out.layout(),
              "add: expected 'self', 'other' and 'out' to have one layout, but got ", self.layout(),
              ", ", other.layout(), " and ", out.layout());
  TORCH_CHECK(self.sizes() == other.sizes(), "torch.add: Expected input tensors to have the same ",
              "shape, but got tensor `self` with shape ", self.sizes(),
              " and tensor `other` with shape ", other.sizes());
  const at::Tensor sum = at::add(self.to_sparse(), other.to_sparse(), alpha);
  const bool blocks = self.layout() == at::kSparseBsr || self.layout() == at::kSparseBsc;
  const at::DimVector block = blocks ? at::sparse_csr::getBlockSize(self) : at::DimVector();
  const at::OptionalIntArrayRef blocksize =
      blocks ? at::OptionalIntArrayRef(block) : at::OptionalIntArrayRef();
  return assign(out, sum.coalesce().to_sparse(self.layout(), blocksize).to(out.scalar_type()));
}

// [m, n] of a compressed [m, k] and a dense [k, n].
at::Tensor times_dense(const at::Tensor& matrix, const at::Tensor& dense) {
  const at::Tensor coo = matrix.to_sparse();
  return rows_times_dense(coo._indices().select(0, 0), coo._indices().select(0, 1), coo._values(),
                          dense, matrix.size(0));
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                      const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  TORCH_CHECK(mat1.dim() == 2 && mat2.dim() == 2, "addmm: matrices expected, got ", mat1.dim(),
              "D and ", mat2.dim(), "D tensors");
  TORCH_CHECK(mat1.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (",
              mat1.size(0), "x", mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  const bool dense_sum = is_strided(self) && is_strided(out);
  if (dense_sum && is_compressed(mat1) && is_strided(mat2)) {
    return combine(self, times_dense(mat1, mat2), beta, alpha, out);
  }
  if (dense_sum && is_strided(mat1) && is_compressed(mat2)) {
    const at::Tensor product = times_dense(mat2.transpose(0, 1), mat1.t()).t();
    return combine(self, product, beta, alpha, out);
  }
  // The elements of a product of sparse matrices depend on data at every step.
  return at::native::call_fallback_fn<&compressed_fallback, at::_ops::addmm_out>::call(
      self, mat1, mat2, beta, alpha, out);
}

at::Tensor& addmv_out(const at::Tensor& self, const at::Tensor& matrix, const at::Tensor& vector,
                      const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  TORCH_CHECK(matrix.dim() == 2 && vector.dim() == 1 && matrix.size(1) == vector.size(0),
              "size mismatch, got input (", self.sizes(), "), mat (", matrix.sizes(), "), vec (",
              vector.sizes(), ")");
  return combine(self, times_dense(matrix, vector.unsqueeze(1)).squeeze(1), beta, alpha, out);
}

void check_sampled(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2) {
  const auto same_dtype = [](const char* left, const at::Tensor& x, const char* right,
                             const at::Tensor& y) {
    TORCH_CHECK(x.scalar_type() == y.scalar_type(), "sampled_addmm: Expected ", left, " and ",
                right, " to have the same dtype, but got ", x.scalar_type(), " and ",
                y.scalar_type());
  };
  TORCH_CHECK(
      self.layout() == at::kSparseCsr && is_strided(mat1) && is_strided(mat2),
      "sampled_addmm: Expected self to have layout Csr and mat1 and mat2 to be strided, got ",
      self.layout(), ", ", mat1.layout(), " and ", mat2.layout());
  same_dtype("mat1", mat1, "mat2", mat2);
  same_dtype("mat1", mat1, "self", self);
  TORCH_CHECK(mat1.dim() >= 2 && mat2.dim() >= 2,
              "sampled_addmm: Expected mat1 and mat2 to be matrices, got ", mat1.dim(), "-D and ",
              mat2.dim(), "-D tensors");
  TORCH_CHECK(mat1.dim() == mat2.dim() && mat1.dim() == self.dim() &&
                  mat1.sizes().slice(0, mat1.dim() - 2) == mat2.sizes().slice(0, mat2.dim() - 2),
              "sampled_addmm: Expected mat1 and mat2 to have the same batch size, but got ",
              mat1.sizes(), " and ", mat2.sizes());
  TORCH_CHECK(mat1.size(-1) == mat2.size(-2),
              "sampled_addmm: mat1 and mat2 shapes cannot be multiplied (", mat1.size(-2), "x",
              mat1.size(-1), " and ", mat2.size(-2), "x", mat2.size(-1), ")");
  TORCH_CHECK(
      self.size(-2) == mat1.size(-2) && self.size(-1) == mat2.size(-1),
      "sampled_addmm: self.shape[-2:] must match mat1.shape[-2] and mat2.shape[-1], but got ",
      self.sizes());
}

// beta * self + alpha * (mat1 @ mat2) at the places of self: an inner product for each.
at::Tensor sampled_addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                         const at::Scalar& beta, const at::Scalar& alpha) {
  check_sampled(self, mat1, mat2);
  const auto gathered = [&](const at::Tensor& matrix, const at::Tensor& places) {
    std::vector<int64_t> shape = places.sizes().vec();
    shape.push_back(matrix.size(-1));
    return matrix.gather(-2, places.to(at::kLong).unsqueeze(-1).expand(shape));
  };
  const at::Tensor products =
      gathered(mat1, rows_of(self)).mul(gathered(mat2.mT(), self.col_indices())).sum(-1);
  const at::Tensor values = weighted_sum(self.values(), products, beta, alpha);
  return at::_sparse_csr_tensor_unsafe(self.crow_indices().clone(), self.col_indices().clone(),
                                       values, self.sizes(), values.scalar_type(), at::kSparseCsr,
                                       self.device(), std::nullopt);
}

at::Tensor& sampled_addmm_out(const at::Tensor& self, const at::Tensor& mat1,
                              const at::Tensor& mat2, const at::Scalar& beta,
                              const at::Scalar& alpha, at::Tensor& out) {
  const at::Tensor result = sampled_addmm(self, mat1, mat2, beta, alpha);
  TORCH_CHECK(out.scalar_type() == self.scalar_type(),
              "sampled_addmm: Expected self and result to have the same dtype, but got ",
              self.scalar_type(), " and ", out.scalar_type());
  return assign(out, result);
}

// From compressed columns to compressed rows or back, where `self` has the layout `from`; all else
// PyTorch converts. By way of COO, which has no batches.
template <typename Op, auto kOfPyTorch>
at::Tensor flip(const at::Tensor& self, at::Layout from, std::optional<int64_t> dense_dim) {
  if (self.layout() != from) {
    return kOfPyTorch(self, dense_dim);
  }
  if (self.dim() - self.dense_dim() != 2) {
    return at::native::call_fallback_fn<&compressed_fallback, Op>::call(self, dense_dim);
  }
  return Op::call(self.to_sparse().coalesce(), dense_dim);
}

at::Tensor to_sparse_csr(const at::Tensor& self, std::optional<int64_t> dense_dim) {
  return flip<at::_ops::_to_sparse_csr, &at::native::sparse_compressed_to_sparse_csr>(
      self, at::kSparseCsc, dense_dim);
}

at::Tensor to_sparse_csc(const at::Tensor& self, std::optional<int64_t> dense_dim) {
  return flip<at::_ops::_to_sparse_csc, &at::native::sparse_compressed_to_sparse_csc>(
      self, at::kSparseCsr, dense_dim);
}

at::Tensor to_sparse_bsr(const at::Tensor& self, c10::IntArrayRef blocksize,
                         std::optional<int64_t> dense_dim) {
  if (self.layout() == at::kSparseBsc || self.layout() == at::kSparseCsc) {
    return at::native::call_fallback_fn<&compressed_fallback, at::_ops::_to_sparse_bsr>::call(
        self, blocksize, dense_dim);
  }
  return at::native::sparse_compressed_to_sparse_bsr(self, blocksize, dense_dim);
}

at::Tensor to_sparse_bsc(const at::Tensor& self, c10::IntArrayRef blocksize,
                         std::optional<int64_t> dense_dim) {
  if (self.layout() == at::kSparseBsr || self.layout() == at::kSparseCsr) {
    return at::native::call_fallback_fn<&compressed_fallback, at::_ops::_to_sparse_bsc>::call(
        self, blocksize, dense_dim);
  }
  return at::native::sparse_compressed_to_sparse_bsc(self, blocksize, dense_dim);
}

// PyTorch's own goes on to its conversions directly: those that go by a kernel are taken out here.
at::Tensor to_sparse(const at::Tensor& self, std::optional<at::Layout> layout,
                     at::OptionalIntArrayRef blocksize, std::optional<int64_t> dense_dim) {
  const bool columns = self.layout() == at::kSparseCsc || self.layout() == at::kSparseBsc;
  const at::Layout target = layout.value_or(at::kSparse);
  if (self.layout() == at::kSparseCsc && target == at::kSparseCsr && !blocksize) {
    return to_sparse_csr(self, dense_dim);
  }
  if (self.layout() == at::kSparseCsr && target == at::kSparseCsc && !blocksize) {
    return to_sparse_csc(self, dense_dim);
  }
  if (columns && target == at::kSparseBsr && blocksize) {
    return to_sparse_bsr(self, *blocksize, dense_dim);
  }
  if (!columns && target == at::kSparseBsc && blocksize) {
    return to_sparse_bsc(self, *blocksize, dense_dim);
  }
  return at::native::sparse_compressed_to_sparse(self, layout, blocksize, dense_dim);
}

// PyTorch takes the column indices as a column of nonzero's result, which the CPU and CUDA lay out
// by columns and the device by rows.
at::Tensor with_contiguous_indices(const at::Tensor& self) {
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(self);
  return at::_sparse_compressed_tensor_unsafe(compressed.contiguous(), plain.contiguous(),
                                              self.values().contiguous(), self.sizes(),
                                              self.options());
}

at::Tensor dense_to_sparse(const at::Tensor& self, std::optional<at::Layout> layout,
                           at::OptionalIntArrayRef blocksize, std::optional<int64_t> dense_dim) {
  const at::Tensor sparse = at::native::dense_to_sparse(self, layout, blocksize, dense_dim);
  return is_compressed(sparse) ? with_contiguous_indices(sparse) : sparse;
}

at::Tensor dense_to_sparse_csr(const at::Tensor& self, std::optional<int64_t> dense_dim) {
  return with_contiguous_indices(at::native::dense_to_sparse_csr(self, dense_dim));
}

at::Tensor dense_to_sparse_csc(const at::Tensor& self, std::optional<int64_t> dense_dim) {
  return with_contiguous_indices(at::native::dense_to_sparse_csc(self, dense_dim));
}

// The check of the invariants reads everything and gives nothing: the CPU does it.
void validate_indices(bool by_row, const at::Tensor& compressed, const at::Tensor& plain,
                      int64_t compressed_dim, int64_t dim, int64_t nnz) {
  static Operator& op = operator_of(c10::Dispatcher::singleton().findSchemaOrThrow(
      "aten::_validate_compressed_sparse_indices", ""));
  announce_fallback(op, "it only checks the data");
  at::_validate_compressed_sparse_indices(by_row, compressed.cpu(), plain.cpu(), compressed_dim,
                                          dim, nnz);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  at::Tensor result = target;
  return is_compressed(target) ? assign(result, self) : result.resize_(self.sizes()).copy_(self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("add.out", &add_out);
  m.impl("addmm.out", &addmm_out);
  m.impl("addmv.out", &addmv_out);
  m.impl("sparse_sampled_addmm", &sampled_addmm);
  m.impl("sparse_sampled_addmm.out", &sampled_addmm_out);
  m.impl("_to_sparse", &to_sparse);
  m.impl("_to_sparse_csr", &to_sparse_csr);
  m.impl("_to_sparse_csc", &to_sparse_csc);
  m.impl("_to_sparse_bsr", &to_sparse_bsr);
  m.impl("_to_sparse_bsc", &to_sparse_bsc);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_validate_compressed_sparse_indices", &validate_indices);
  m.impl("_to_sparse", &dense_to_sparse);
  m.impl("_to_sparse_csr", &dense_to_sparse_csr);
  m.impl("_to_sparse_csc", &dense_to_sparse_csc);
}

}  // namespace tn::eager
