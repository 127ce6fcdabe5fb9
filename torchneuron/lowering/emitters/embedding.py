"""Lookup of table rows, sums of rows in bags, and their gradients.

An index outside the table reads the nearest row, where the CPU raises; gradients for it are dropped.
"""

from collections.abc import Callable
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import lowest, opmath
from torchneuron.lowering.emitters.scan import prefix_sum
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.registry import emitter

_I64 = torch.int64
_SUM, _MEAN, _MAX = range(3)


def _rows(b: Builder, table: Val, indices: Val) -> Val:
    """(N, D) rows of ``table`` at ``indices`` (N)."""
    if table.numel == 0 or indices.numel == 0:
        return b.full((*indices.shape, *table.shape[1:]), 0, table.dtype)
    return b.take(table, indices, 0)


def _combine_rows(
    b: Builder, start: Val, indices: Val, rows: Val, combine: Callable[[Val, Val], Val]
) -> Val:
    """``start`` (V, ...) with each of ``rows`` (N, ...) combined into the row named by ``indices``."""
    if rows.numel == 0 or start.numel == 0:
        return start
    return b.scatter(
        [start],
        b.reshape(indices, (indices.numel, 1)),
        [rows],
        combine,
        window_dims=list(range(1, rows.ndim)),
        inserted=[0],
        index_map=[0],
        index_vector_dim=1,
    )[0]


def _add_rows(b: Builder, count: int, indices: Val, rows: Val) -> Val:
    """(count, ...): the sum of the rows that have each index."""
    return _combine_rows(b, b.full((count, *rows.shape[1:]), 0, rows.dtype), indices, rows, b.add)


def _along(b: Builder, vector: Val, rows: Val) -> Val:
    """One value per row, as a column to broadcast over ``rows``."""
    return b.reshape(vector, (vector.numel, *[1] * (rows.ndim - 1)))


@emitter("aten.embedding")
def embedding(
    b: Builder,
    out: Any,
    weight: Val,
    indices: Val,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Val:
    return b.reshape(_rows(b, weight, b.reshape(indices, (indices.numel,))), shape_of(out))


@emitter("aten.embedding_dense_backward")
def embedding_dense_backward(
    b: Builder,
    out: Any,
    grad_output: Val,
    indices: Val,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Val:
    flat = b.convert(b.reshape(indices, (indices.numel,)), _I64)
    rows = b.reshape(grad_output, (indices.numel, *shape_of(out)[1:]))
    rows = b.convert(rows, opmath(out.dtype))
    if scale_grad_by_freq:
        rows = _divide_by_frequency(b, rows, flat, num_weights)
    flat = _without(b, flat, padding_idx, num_weights)
    return finish(b, _add_rows(b, num_weights, flat, rows), out)


def _divide_by_frequency(b: Builder, rows: Val, indices: Val, count: int) -> Val:
    frequency = _add_rows(b, count, indices, b.full(indices.shape, 1, rows.dtype))
    return b.div(rows, _along(b, _rows(b, frequency, indices), rows))


def _without(b: Builder, indices: Val, padding_idx: int, count: int) -> Val:
    """``indices`` with the padding's moved out of the table, where updates are dropped."""
    if padding_idx < 0:
        return indices
    return b.select(b.eq(indices, padding_idx), count, indices)


@emitter("aten.embedding_renorm", static=("norm_type",))
def embedding_renorm(
    b: Builder, out: Any, self: Val, indices: Val, max_norm: Val | Number, norm_type: float
) -> Val:
    flat = b.reshape(indices, (indices.numel,))
    rows = b.convert(_rows(b, self, flat), opmath(self.dtype))
    norm, limit = _row_norms(b, rows, norm_type), b.scalar(max_norm, rows.dtype)
    scaled = b.mul(rows, b.div(limit, b.add(norm, 1e-7)))
    rows = b.convert(b.select(b.gt(norm, limit), scaled, rows), self.dtype)
    return _combine_rows(b, self, flat, rows, lambda _, new: new)


def _row_norms(b: Builder, rows: Val, p: float) -> Val:
    """(N, 1)"""
    size = b.abs(rows)
    if p == float("inf"):
        return b.reduce_max(size, [1], True)
    if p == 2:
        return b.sqrt(b.reduce_sum(b.mul(size, size), [1], True))
    return b.pow(b.reduce_sum(b.pow(size, p), [1], True), 1 / p)


# Bags: bag k holds the indices from offsets[k] up to offsets[k + 1]


def _bag_of_each(b: Builder, offsets: Val, count: int) -> Val:
    """(count): the number of the bag each index lies in."""
    starts = _add_rows(b, count, b.convert(offsets, _I64), b.full(offsets.shape, 1, _I64))
    return b.sub(prefix_sum(b, starts), 1)


def _bag_counts(b: Builder, bag: Val, kept: Val, bags: int) -> Val:
    """(bags): how many of the kept indices lie in each."""
    return _add_rows(b, bags, bag, b.convert(kept, _I64))


def _bag_maximum(b: Builder, rows: Val, indices: Val, bag: Val, bags: int) -> tuple[Val, Val]:
    """((bags, D) maxima, the table rows that they come from), 0 for an empty bag."""
    width = rows.shape[1]
    start = b.full((bags, width), lowest(rows.dtype), rows.dtype)
    largest = _combine_rows(b, start, bag, rows, b.max)
    own = b.take(largest, bag, 0) if rows.numel else rows
    is_largest = b.or_(b.eq(rows, own), b.isnan(rows))
    position = b.select(is_largest, b.iota(rows.shape, 0), rows.shape[0])
    none = b.full((bags, width), rows.shape[0], _I64)
    first = _combine_rows(b, none, bag, position, b.min)
    found = b.lt(first, rows.shape[0])
    if rows.numel == 0:
        return b.full((bags, width), 0, rows.dtype), b.full((bags, width), 0, _I64)
    source = b.select(found, b.take(indices, b.min(first, rows.shape[0] - 1), 0), 0)
    return b.select(found, largest, 0), source


@emitter("aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(
    b: Builder,
    out: Any,
    weight: Val,
    indices: Val,
    offsets: Val,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Val | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Val]:
    bags = int(out[0].shape[0])
    flat = b.convert(indices, _I64)
    bag = _bag_of_each(b, b.slice_dim(offsets, 0, 0, bags), flat.numel)
    kept = b.ne(flat, padding_idx)
    bag_if_kept = b.select(kept, bag, bags)
    counts = _bag_counts(b, bag_if_kept, kept, bags)
    rows = b.convert(_rows(b, weight, flat), opmath(weight.dtype))
    largest: Val | None = None
    if mode == _MAX:
        result, largest = _bag_maximum(b, rows, flat, bag_if_kept, bags)
    else:
        if per_sample_weights is not None:
            rows = b.mul(rows, _along(b, b.convert(per_sample_weights, rows.dtype), rows))
        result = _add_rows(b, bags, bag_if_kept, rows)
        if mode == _MEAN:
            result = b.div(result, _along(b, b.convert(b.max(counts, 1), rows.dtype), result))
    return [
        finish(b, result, out[0]),
        _fitted(b, bag, out[1]),
        _fitted(b, counts, out[2]),
        _fitted(b, counts if largest is None else largest, out[3]),
    ]


def _fitted(b: Builder, value: Val, like: torch.Tensor) -> Val:
    """``value``, or zeros where the device's convention has another shape because nothing reads it.

    One more number than there are bags is asked for where the last offset is included.
    """
    shape = shape_of(like)
    if value.ndim == 1 and shape == (value.numel + 1,):
        value = b.pad(value, [0], [1])
    return b.convert(value, like.dtype) if value.shape == shape else b.full(shape, 0, like.dtype)


@emitter("aten._embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    b: Builder,
    out: Any,
    grad: Val,
    indices: Val,
    offset2bag: Val,
    bag_size: Val,
    maximum_indices: Val,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Val | None,
    padding_idx: int = -1,
) -> Val:
    wide = b.convert(grad, opmath(grad.dtype))
    bag_size = b.slice_dim(bag_size, 0, 0, grad.shape[0]) if mode != _SUM else bag_size
    if mode == _MAX:
        filled = _along(b, b.gt(bag_size, 0), wide)
        grads = b.select(filled, wide, 0)
        return finish(b, _maximum_gradient(b, grads, maximum_indices, num_weights), out)
    flat = b.convert(indices, _I64)
    if mode == _MEAN:
        size = b.convert(b.max(bag_size, 1), wide.dtype)
        wide = b.div(wide, _along(b, size, wide))
    rows = _rows(b, wide, b.convert(offset2bag, _I64))
    if per_sample_weights is not None:
        rows = b.mul(rows, _along(b, b.convert(per_sample_weights, rows.dtype), rows))
    if scale_grad_by_freq:
        rows = _divide_by_frequency(b, rows, flat, num_weights)
    flat = _without(b, flat, padding_idx, num_weights)
    return finish(b, _add_rows(b, num_weights, flat, rows), out)


def _maximum_gradient(b: Builder, grad: Val, source: Val, count: int) -> Val:
    """Each bag's gradient goes, column by column, to the row its maximum came from."""
    if grad.numel == 0:
        return b.full((count, grad.shape[1]), 0, grad.dtype)
    places = [b.reshape(b.convert(source, _I64), (grad.numel, 1))]
    places.append(b.reshape(b.iota(grad.shape, 1), (grad.numel, 1)))
    return b.scatter(
        [b.full((count, grad.shape[1]), 0, grad.dtype)],
        b.concat(places, 1),
        [b.reshape(grad, (grad.numel,))],
        b.add,
        window_dims=[],
        inserted=[0, 1],
        index_map=[0, 1],
        index_vector_dim=1,
    )[0]


@emitter("aten._embedding_bag_backward")
def embedding_bag_backward(
    b: Builder,
    out: Any,
    grad: Val,
    indices: Val,
    offsets: Val,
    offset2bag: Val,
    bag_size: Val,
    maximum_indices: Val,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Val | None,
    padding_idx: int = -1,
) -> Val:
    bag = _known_bags(b, offset2bag, offsets, indices.numel)
    saved = (bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode)
    return embedding_bag_dense_backward(
        b, out, grad, indices, *saved, per_sample_weights, padding_idx
    )


def _known_bags(b: Builder, offset2bag: Val, offsets: Val, count: int) -> Val:
    """``offset2bag``, which forward leaves empty where it did not need it."""
    return offset2bag if offset2bag.numel == count else _bag_of_each(b, offsets, count)


@emitter("aten._embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    b: Builder,
    out: Any,
    grad: Val,
    weight: Val,
    indices: Val,
    offsets: Val,
    offset2bag: Val,
    mode: int,
    padding_idx: int = -1,
) -> Val:
    wide = b.convert(grad, opmath(grad.dtype))
    bag = b.convert(_known_bags(b, offset2bag, offsets, indices.numel), _I64)
    product = b.mul(_rows(b, wide, bag), b.convert(_rows(b, weight, indices), wide.dtype))
    result = b.reduce_sum(product, [1])
    kept = b.ne(b.convert(indices, _I64), padding_idx)
    return finish(b, b.select(kept, result, 0), out)
