// torch.sparse.mm with a reduction: the rows of a dense matrix that a CSR matrix names, scaled by
// its values and reduced by row, and the gradients of that.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "eager/sparse.h"

namespace tn::eager {
namespace {

// The elements of a CSR matrix as (row, column, value), each of shape [nnz].
struct Elements {
  explicit Elements(const at::Tensor& csr)
      : row(rows_of(csr)), column(csr.col_indices().to(at::kLong)), value(csr.values()) {}
  at::Tensor row, column, value;
};

bool is_extremum(std::string_view reduce) {
  return reduce == "max" || reduce == "amax" || reduce == "min" || reduce == "amin";
}

// How many elements each row has, at least 1: [rows, 1].
at::Tensor row_lengths(const at::Tensor& csr, c10::ScalarType dtype) {
  return csr.crow_indices().diff().clamp_min(1).to(dtype).unsqueeze(1);
}

void check(const at::Tensor& self, const at::Tensor& other, std::string_view reduce) {
  TORCH_CHECK(self.layout() == at::kSparseCsr,
              "sparse_mm_reduce: expect self to be SparseCsr, got ", self.layout());
  TORCH_CHECK(self.dim() == 2 && self.dense_dim() == 0,
              "sparse_mm_reduce: expected non-hybrid 2-d sparse tensor");
  TORCH_CHECK(other.dim() == 2 && other.size(0) == self.size(1),
              "Expected a tensor of dimension 2 and tensor.size[0] == ", self.size(1),
              " but got: dimension ", other.dim(),
              " and tensor.size[0] = ", other.dim() == 0 ? 0 : other.size(0));
  TORCH_CHECK(other.scalar_type() == self.scalar_type(),
              "Expected tensor for argument #1 'other' to have scalar type ", self.scalar_type(),
              "; but got ", other.scalar_type(),
              " instead (while checking arguments for sparse_mm_reduce)");
  TORCH_CHECK(reduce == "sum" || reduce == "mean" || is_extremum(reduce),
              "reduce argument must be either sum, prod, mean, amax or amin, got ", reduce);
}

// [rows, k]: the smallest element of each row whose product is the extremum, `count` for an empty
// row.
at::Tensor places_of(const at::Tensor& extremum, const at::Tensor& products,
                     const at::Tensor& row) {
  const int64_t count = products.size(0);
  const at::Tensor place = at::arange(count, row.options()).unsqueeze(1);
  const at::Tensor candidates = at::where(products == extremum.index_select(0, row), place,
                                          at::full({}, count, row.options()));
  return at::full(extremum.sizes(), count, row.options())
      .scatter_reduce(0, row.unsqueeze(1).expand(products.sizes()), candidates, "amin");
}

std::tuple<at::Tensor, at::Tensor> mm_reduce(const at::Tensor& self, const at::Tensor& other,
                                             std::string_view reduce) {
  check(self, other, reduce);
  const int64_t count = self.size(0);
  const at::Tensor no_places = at::empty({0}, self.col_indices().options());
  if (self._nnz() == 0) {
    return {at::zeros({count, other.size(1)}, other.options()), no_places};
  }
  const Elements elements(self);
  const at::Tensor products =
      elements.value.unsqueeze(1).mul(other.index_select(0, elements.column));
  if (!is_extremum(reduce)) {
    const at::Tensor sum = sum_rows(products, elements.row, count);
    return {reduce == "sum" ? sum : sum.div(row_lengths(self, sum.scalar_type())), no_places};
  }
  const bool largest = reduce == "max" || reduce == "amax";
  const at::Tensor extremum =
      at::zeros({count, other.size(1)}, other.options())
          .scatter_reduce(0, elements.row.unsqueeze(1).expand(products.sizes()), products,
                          largest ? "amax" : "amin", /*include_self=*/false);
  // The places are for the backward pass alone.
  const bool wanted = at::GradMode::is_enabled() && (self.requires_grad() || other.requires_grad());
  return {extremum, wanted ? places_of(extremum, products, elements.row) : no_places};
}

// The gradients by way of the extremum's places [rows, k]: each goes to one element.
std::tuple<at::Tensor, at::Tensor> extremum_gradients(const Elements& elements,
                                                      const at::Tensor& gradient,
                                                      const at::Tensor& other,
                                                      const at::Tensor& places) {
  const int64_t count = elements.value.size(0);
  const at::Tensor valid = places < count;
  const at::Tensor place = places.clamp_max(count - 1).to(at::kLong);
  const at::Tensor used = at::where(valid, gradient, at::zeros({}, gradient.options()));
  const at::Tensor column = elements.column.index_select(0, place.flatten()).view(place.sizes());
  const at::Tensor value = elements.value.index_select(0, place.flatten()).view(place.sizes());
  const at::Tensor by_value =
      at::zeros({count}, gradient.options())
          .index_add(0, place.flatten(), used.mul(other.gather(0, column)).flatten());
  const at::Tensor by_other = at::zeros_like(other).scatter_add(0, column, used.mul(value));
  return {by_value, by_other};
}

std::tuple<at::Tensor, at::Tensor> mm_reduce_backward(
    const at::Tensor& self, const at::Tensor& gradient, const at::Tensor& other,
    std::string_view reduce, const at::Tensor& places, std::array<bool, 2> mask) {
  check(self, other, reduce);
  const Elements elements(self);
  at::Tensor by_value = at::zeros_like(elements.value);
  at::Tensor by_other = at::zeros_like(other);
  if (self._nnz() > 0 && is_extremum(reduce)) {
    std::tie(by_value, by_other) = extremum_gradients(elements, gradient, other, places);
  } else if (self._nnz() > 0) {
    const at::Tensor scaled =
        reduce == "sum" ? gradient : gradient.div(row_lengths(self, gradient.scalar_type()));
    const at::Tensor rows = scaled.index_select(0, elements.row);
    by_value = rows.mul(other.index_select(0, elements.column)).sum(1);
    by_other = sum_rows(rows.mul(elements.value.unsqueeze(1)), elements.column, other.size(0));
  }
  at::Tensor by_self;
  if (mask[0]) {
    by_self = at::_sparse_csr_tensor_unsafe(self.crow_indices(), self.col_indices(), by_value,
                                            self.sizes(), by_value.scalar_type(), at::kSparseCsr,
                                            self.device(), std::nullopt);
  }
  return {by_self, mask[1] ? by_other : at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_sparse_mm_reduce_impl", &mm_reduce);
  m.impl("_sparse_mm_reduce_impl_backward", &mm_reduce_backward);
}

}  // namespace tn::eager
