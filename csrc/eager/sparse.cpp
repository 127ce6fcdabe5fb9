// Sparse COO tensors: what PyTorch has as kernels of the CPU and of CUDA only, made of dense device
// ops.
#include "eager/sparse.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>
#include <ATen/native/SparseTensorUtils.h>
#include <torch/library.h>

namespace tn::eager {
namespace {

using at::sparse::get_sparse_impl;

// Puts indices and values into a sparse tensor, whatever it held.
void fill(const at::Tensor& out, const at::Tensor& like, const at::Tensor& indices,
          const at::Tensor& values, bool coalesced) {
  get_sparse_impl(out)->resize_and_clear_(like.sparse_dim(), like.dense_dim(), like.sizes());
  at::sparse::alias_into_sparse(out, indices, values.to(out.scalar_type()));
  out._coalesced_(coalesced);
}

at::Tensor sparse_of(const at::Tensor& like, const at::Tensor& indices, const at::Tensor& values,
                     bool coalesced) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      like.sparse_dim(), like.dense_dim(), like.sizes(), indices, values,
      values.options().layout(at::kSparse), coalesced);
}

// [sparse_dim, n] to [n]: the places in the sparse dimensions taken as one. PyTorch's own goes by
// kernels of the CPU and of CUDA.
at::Tensor flatten_indices(const at::Tensor& indices, c10::IntArrayRef sizes) {
  if (indices.size(0) == 0) {
    return at::zeros({indices.size(1)}, indices.options());
  }
  at::Tensor flat = indices.select(0, 0);
  for (int64_t dim = 1; dim < indices.size(0); ++dim) {
    flat = indices.select(0, dim).add(flat, sizes[static_cast<size_t>(dim)]);
  }
  return flat;
}

// The inverse of flatten_indices: [n] to [sparse_dim, n].
at::Tensor unflatten_indices(const at::Tensor& flat, c10::IntArrayRef sizes) {
  if (sizes.empty()) {
    return at::empty({0, flat.size(0)}, flat.options());
  }
  std::vector<at::Tensor> rows(sizes.size());
  at::Tensor rest = flat;
  for (size_t dim = sizes.size(); dim-- > 1;) {
    rows[dim] = at::remainder(rest, sizes[dim]);
    rest = at::floor_divide(rest, sizes[dim]);
  }
  rows[0] = rest;
  return at::stack(rows);
}

// One element per index, in the order of the indices; duplicates are added.
at::Tensor coalesce(const at::Tensor& self) {
  if (self._nnz() < 2) {
    at::Tensor copy = self.clone();
    return copy._coalesced_(true);
  }
  const at::Tensor values = self._values();
  const at::Tensor flat = flatten_indices(self._indices(), self.sizes());
  const auto [unique, position, counts] =
      at::_unique2(flat, /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/false);
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = unique.size(0);
  const at::Tensor sums = sum_rows(values, position, shape[0]);
  return sparse_of(self, unflatten_indices(unique, self.sizes().slice(0, self.sparse_dim())), sums,
                   /*coalesced=*/true);
}

// Where `wanted` stands among the sorted `present`, and whether it is there. All 1-d int64.
std::pair<at::Tensor, at::Tensor> find(const at::Tensor& present, const at::Tensor& wanted) {
  const at::Tensor place =
      at::searchsorted(present, wanted).clamp_max(std::max<int64_t>(present.size(0) - 1, 0));
  return {place, present.index_select(0, place) == wanted};
}

// A mask over rows, made to broadcast over the dense dimensions of `values`.
at::Tensor over_rows(const at::Tensor& mask, const at::Tensor& values) {
  std::vector<int64_t> shape(static_cast<size_t>(values.dim()), 1);
  shape[0] = mask.size(0);
  return mask.view(shape);
}

// The sizes with the sparse dimensions in one, as flattened indices count them.
std::vector<int64_t> shape_by_row(const at::Tensor& sparse) {
  std::vector<int64_t> shape = sparse.sizes().slice(sparse.sparse_dim()).vec();
  shape.insert(shape.begin(), c10::multiply_integers(sparse.sizes().slice(0, sparse.sparse_dim())));
  return shape;
}

// The dtype that the operands are computed in, which `out` must be able to take.
c10::ScalarType common_dtype(const at::Tensor& self, const at::Tensor& other,
                             const at::Tensor& out) {
  const c10::ScalarType common = at::result_type(self, other);
  TORCH_CHECK(at::canCast(common, out.scalar_type()), "Can't convert result type ", common,
              " to output ", out.scalar_type());
  return common;
}

at::Tensor& add_to_dense(const at::Tensor& dense, const at::Tensor& sparse, const at::Scalar& alpha,
                         at::Tensor& out) {
  TORCH_CHECK(!out.is_sparse(), "add: expected 'out' to be a dense tensor");
  TORCH_CHECK(dense.device() == sparse.device(), "add: expected 'other' to be on ", dense.device(),
              ", but got ", sparse.device());
  TORCH_CHECK(dense.sizes() == sparse.sizes(),
              "add: expected 'self' and 'other' to have same size, but self has size ",
              dense.sizes(), " while other has size ", sparse.sizes(),
              " (FYI: dense-sparse addition does not currently support broadcasting)");
  const c10::ScalarType common = common_dtype(dense, sparse, out);
  at::Tensor sum = dense.to(common).reshape(shape_by_row(sparse));
  if (sparse._nnz() > 0 && sum.numel() > 0) {
    sum = sum.index_add(0, flatten_indices(sparse._indices(), sparse.sizes()),
                        sparse._values().to(common), alpha);
  }
  at::native::resize_output(out, dense.sizes());
  return out.copy_(sum.view(dense.sizes()));
}

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                    at::Tensor& out) {
  if (!self.is_sparse()) {
    return add_to_dense(self, other, alpha, out);
  }
  TORCH_CHECK(other.is_sparse(),
              "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.device() == other.device() && self.device() == out.device(),
              "add: expected all tensors to be on the same device, but got ", self.device(), ", ",
              other.device(), " and ", out.device());
  TORCH_CHECK(self.sizes() == other.sizes(),
              "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(),
              " != ", other.sizes());
  TORCH_CHECK(at::sparse::is_same_density(self, other),
              "add: expected 'self' and 'other' to have same density, but 'self' has ",
              self.sparse_dim(), " sparse dimensions while 'other' has ", other.sparse_dim(),
              " sparse dimensions");
  const c10::ScalarType common = common_dtype(self, other, out);
  const at::Tensor added = other._values().to(common);
  at::Tensor sum = sparse_of(
      self, at::cat({self._indices(), other._indices()}, 1),
      at::cat({self._values().to(common), alpha.equal(1) ? added : added.mul(alpha)}), false);
  // Sums of coalesced tensors stay so; what is added up again and again must not grow for ever.
  if ((self.is_coalesced() && other.is_coalesced()) || sum._nnz() > sum.numel()) {
    sum = sum.coalesce();
  }
  fill(out, self, sum._indices(), sum._values(), sum.is_coalesced());
  return out;
}

at::Tensor& mul_with_dense(const at::Tensor& self, const at::Tensor& dense, at::Tensor& out) {
  const std::vector<int64_t> common = at::infer_size(self.sizes(), dense.sizes());
  at::Tensor sparse = self;
  if (self.sizes() != c10::IntArrayRef(common)) {
    sparse = at::_sparse_broadcast_to(self, common);
    sparse = self.is_coalesced() ? sparse.coalesce() : sparse;
  }
  const at::Tensor factor =
      dense.expand(common)
          .reshape(shape_by_row(sparse))
          .index_select(0, flatten_indices(sparse._indices(), sparse.sizes()));
  fill(out, sparse, sparse._indices().clone(), sparse._values().mul(factor), sparse.is_coalesced());
  return out;
}

at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  common_dtype(self, other, out);
  if (!self.is_sparse() || !other.is_sparse()) {
    const at::Tensor& sparse = self.is_sparse() ? self : other;
    const at::Tensor& dense = self.is_sparse() ? other : self;
    if (dense.dim() == 0) {
      fill(out, sparse, sparse._indices().clone(), sparse._values().mul(dense),
           sparse.is_coalesced());
      return out;
    }
    return mul_with_dense(sparse, dense, out);
  }
  if (self.dim() == 0 || other.dim() == 0) {
    const at::Tensor& sparse = self.dim() == 0 ? other : self;
    const at::Tensor scalar = (self.dim() == 0 ? self : other).to_dense();
    fill(out, sparse, sparse._indices().clone(), sparse._values().mul(scalar),
         sparse.is_coalesced());
    return out;
  }
  TORCH_CHECK(self.sizes() == other.sizes() && at::sparse::is_same_density(self, other),
              "mul: expects sparse inputs with equal dimensionality, number of sparse dimensions, "
              "and shape of sparse dimensions");
  const at::Tensor left = self.coalesce();
  const at::Tensor right = other.coalesce();
  if (left._nnz() == 0 || right._nnz() == 0) {
    get_sparse_impl(out)->resize_and_clear_(self.sparse_dim(), self.dense_dim(), self.sizes());
    out._coalesced_(true);
    return out;
  }
  const auto [place, present] = find(flatten_indices(right._indices(), self.sizes()),
                                     flatten_indices(left._indices(), self.sizes()));
  const at::Tensor kept = at::nonzero(present).squeeze(1);
  const at::Tensor values = left._values().index_select(0, kept).mul(
      right._values().index_select(0, place.index_select(0, kept)));
  fill(out, self, left._indices().index_select(1, kept), values, /*coalesced=*/true);
  return out;
}

// The elements of `self` at the indices of `mask`: zero where a sparse `self` has none.
at::Tensor sparse_mask(const at::Tensor& self, const at::Tensor& mask) {
  if (self.layout() != at::kSparse || !mask.is_sparse() || self.is_same(mask) ||
      self.sizes() != mask.sizes() || !at::sparse::is_same_density(self, mask) ||
      mask._nnz() == 0) {
    return at::native::sparse_mask(self, mask);
  }
  const at::Tensor source = self.coalesce();
  at::Tensor values;
  if (source._nnz() == 0) {
    values = at::zeros(mask._values().sizes(), source._values().options());
  } else {
    const auto [place, present] = find(flatten_indices(source._indices(), self.sizes()),
                                       flatten_indices(mask._indices(), self.sizes()));
    const at::Tensor found = source._values().index_select(0, place);
    values = at::where(over_rows(present, found), found, at::zeros({}, found.options()));
  }
  return sparse_of(mask, mask._indices().clone(), values, mask.is_coalesced());
}

// beta * self + alpha * (sparse @ dense), and the sparse tensor's rows gathered from the dense one.
at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& sparse, const at::Tensor& dense,
                      const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  TORCH_CHECK(sparse.is_sparse() && !dense.is_sparse() && !self.is_sparse() && !out.is_sparse(),
              "addmm: expected a sparse 'mat1' and dense 'self', 'mat2' and 'out'");
  TORCH_CHECK(sparse.sparse_dim() == 2, "addmm: matrices expected, got ", sparse.sparse_dim(),
              "D tensor");
  TORCH_CHECK(sparse.dense_dim() == 0, "addmm: scalar values expected, got ", sparse.dense_dim(),
              "D values");
  TORCH_CHECK(dense.dim() == 2, "addmm: matrices expected, got ", dense.dim(), "D tensor");
  TORCH_CHECK(sparse.size(1) == dense.size(0), "addmm: Argument #3 (dense): Expected dim 0 size ",
              sparse.size(1), ", got ", dense.size(0));
  const at::Tensor product =
      rows_times_dense(sparse._indices().select(0, 0), sparse._indices().select(0, 1),
                       sparse._values(), dense, sparse.size(0));
  return combine(self, product, beta, alpha, out);
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& sparse, const at::Tensor& dense,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  at::Tensor out = at::empty({0}, dense.options());
  return addmm_out(self, sparse, dense, beta, alpha, out);
}

at::Tensor& addmm_(at::Tensor& self, const at::Tensor& sparse, const at::Tensor& dense,
                   const at::Scalar& beta, const at::Scalar& alpha) {
  return addmm_out(self, sparse, dense, beta, alpha, self);
}

// What the CPU fallback writes its results back with.
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  at::Tensor result = target;
  if (!target.is_sparse()) {
    target.resize_(self.sizes());
  }
  return result.copy_(self);
}

}  // namespace

at::Tensor sum_rows(const at::Tensor& values, const at::Tensor& row, int64_t count) {
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = count;
  const bool low = at::isReducedFloatingType(values.scalar_type());
  const at::Tensor wide = low ? values.to(at::kFloat) : values;
  return at::zeros(shape, wide.options()).index_add(0, row, wide).to(values.scalar_type());
}

at::Tensor rows_times_dense(const at::Tensor& row, const at::Tensor& column,
                            const at::Tensor& values, const at::Tensor& dense, int64_t count) {
  if (values.size(0) == 0) {
    return at::zeros({count, dense.size(1)}, dense.options());
  }
  return sum_rows(values.unsqueeze(1).mul(dense.index_select(0, column)), row, count);
}

at::Tensor rows_of(const at::Tensor& csr) {
  const at::Tensor columns = csr.col_indices();
  return at::_convert_indices_from_csr_to_coo(csr.crow_indices(), columns)
      .select(0, -2)
      .view(columns.sizes());
}

at::Tensor weighted_sum(const at::Tensor& self, const at::Tensor& product, const at::Scalar& beta,
                        const at::Scalar& alpha) {
  TORCH_CHECK(at::is_expandable_to(self.sizes(), product.sizes()),
              "The expanded size of the tensor ", self.sizes(),
              " does not match the size of the product ", product.sizes());
  const at::Tensor sum = alpha.equal(1) ? product : product.mul(alpha);
  // As in a dense addmm, what beta = 0 multiplies is not looked at.
  return beta.equal(0) ? sum : sum.add(self, beta);
}

at::Tensor& combine(const at::Tensor& self, const at::Tensor& product, const at::Scalar& beta,
                    const at::Scalar& alpha, at::Tensor& out) {
  const at::Tensor sum = weighted_sum(self, product, beta, alpha);
  at::native::resize_output(out, product.sizes());
  return out.copy_(sum);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_coalesce", &coalesce);
  m.impl("add.out", &add_out);
  m.impl("mul.out", &mul_out);
  m.impl("sparse_mask", &sparse_mask);
  m.impl("addmm.out", &addmm_out);
  m.impl("addmm", &addmm);
  m.impl("addmm_", &addmm_);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

}  // namespace tn::eager
