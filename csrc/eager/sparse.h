// Products of sparse matrices with dense ones, made of dense device ops, for every sparse layout.
#pragma once

#include <ATen/core/Tensor.h>

namespace tn::eager {

// [count, ...]: the sum of the rows `values[i]` that have the same `row[i]`, zero where there is
// none. Half precision is added up in float32.
at::Tensor sum_rows(const at::Tensor& values, const at::Tensor& row, int64_t count);

// [count, k]: the matrix with `values[i]` at (row[i], column[i]), times `dense` of shape [*, k].
at::Tensor rows_times_dense(const at::Tensor& row, const at::Tensor& column,
                            const at::Tensor& values, const at::Tensor& dense, int64_t count);

// The row of each element of a CSR tensor, int64, of the shape of its column indices.
at::Tensor rows_of(const at::Tensor& csr);

// beta * self + alpha * product, in the shape of `product`.
at::Tensor weighted_sum(const at::Tensor& self, const at::Tensor& product, const at::Scalar& beta,
                        const at::Scalar& alpha);

// Writes the weighted sum to `out`.
at::Tensor& combine(const at::Tensor& self, const at::Tensor& product, const at::Scalar& beta,
                    const at::Scalar& alpha, at::Tensor& out);

}  // namespace tn::eager
