"""Linear maps along one dimension that are known when the program is built: interpolation, padding, uneven pooling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchneuron.lowering.builder import Builder, Val

# With more terms than this one gather and a reduction replace a gather for each.
_MAX_TERMS = 8


@dataclass(frozen=True)
class Rows:
    """``y[i] = sum over t of weights[i, t] * x[columns[i, t]]``, for the terms that are ``present``.

    All three arrays are (size of y, terms); ``size`` is that of x.
    """

    columns: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]
    present: np.ndarray[Any, Any]
    size: int

    @staticmethod
    def from_entries(
        count: int, size: int, entries: Sequence[Sequence[tuple[int, float]]]
    ) -> "Rows":
        """``entries[i]`` lists the (column, weight) pairs of row i; ``count`` is the number of rows."""
        terms = max((len(row) for row in entries), default=0)
        columns = np.zeros((count, terms), np.int64)
        weights = np.zeros((count, terms), np.float64)
        present = np.zeros((count, terms), np.bool_)
        for i, row in enumerate(entries):
            for t, (column, weight) in enumerate(row):
                columns[i, t], weights[i, t], present[i, t] = column, weight, True
        return Rows(columns, weights, present, size)

    @staticmethod
    def picks(columns: Sequence[int], size: int) -> "Rows":
        """``y[i] = x[columns[i]]``"""
        return Rows.from_entries(len(columns), size, [[(column, 1.0)] for column in columns])

    def transposed(self) -> "Rows":
        """The map's transpose, which carries gradients back."""
        entries: list[list[tuple[int, float]]] = [[] for _ in range(self.size)]
        for i in range(len(self.columns)):
            for t in np.flatnonzero(self.present[i]):
                entries[self.columns[i, t]].append((i, float(self.weights[i, t])))
        return Rows.from_entries(self.size, len(self.columns), entries)

    def is_identity(self) -> bool:
        """Whether y is x."""
        rows, terms = self.columns.shape
        if terms != 1 or rows != self.size or not self.present.all():
            return False
        return bool((self.columns[:, 0] == np.arange(rows)).all() and (self.weights == 1).all())


def apply(b: Builder, x: Val, dim: int, rows: Rows) -> Val:
    """``rows`` along ``dim`` of ``x``, in ``x``'s dtype."""
    dim %= x.ndim
    count, terms = rows.columns.shape
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    if rows.is_identity():
        return x
    if terms == 0 or 0 in shape or x.numel == 0:
        return b.full(shape, 0, x.dtype)
    if terms > _MAX_TERMS:
        return b.reduce_sum(_all_terms(b, x, dim, rows), [dim + 1])
    total: Val | None = None
    for t in range(terms):
        seen = b.take(x, _indices(b, rows.columns[:, t]), dim)
        term = _weighted(b, seen, rows.weights[:, t], rows.present[:, t], [dim])
        total = term if total is None else b.add(total, term)
    assert total is not None
    return total


def _all_terms(b: Builder, x: Val, dim: int, rows: Rows) -> Val:
    """(..., rows, terms, ...)"""
    seen = b.take(x, _indices(b, rows.columns), dim)
    return _weighted(b, seen, rows.weights, rows.present, [dim, dim + 1])


def _indices(b: Builder, columns: np.ndarray[Any, Any]) -> Val:
    return b.constant(np.ascontiguousarray(columns), torch.int32)


def _weighted(
    b: Builder,
    x: Val,
    weights: np.ndarray[Any, Any],
    present: np.ndarray[Any, Any],
    dims: Sequence[int],
) -> Val:
    """``x`` times the weights along ``dims``, 0 (whatever x is) where no term is present."""
    if not (weights[present] == 1).all():
        factor = b.constant(np.ascontiguousarray(weights), x.dtype)
        x = b.mul(x, b.broadcast_in_dim(factor, x.shape, dims))
    if not present.all():
        mask = b.constant(np.ascontiguousarray(present), torch.bool)
        x = b.select(b.broadcast_in_dim(mask, x.shape, dims), x, 0)
    return x
