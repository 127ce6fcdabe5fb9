"""Writing by index: scatter, index_add and their kin, index_put, put, masked_scatter.

Where an index occurs twice, XLA:CPU applies the updates in order, as PyTorch does; other devices may not. An update
whose index lies outside is dropped, where PyTorch's CPU kernels raise IndexError.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import highest, is_float, lowest, opmath
from torchneuron.lowering.emitters.indexing import (
    Coordinates,
    Indices,
    coordinates,
    element_index,
    is_mask,
    wrapped,
)
from torchneuron.lowering.emitters.scan import counter_dtype, prefix_sum
from torchneuron.lowering.emitting import finish, is_one, operand
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter

Combine = Callable[[Val, Val], Val]

# Contiguous elements that make scattering a slice worthwhile as it lies.
_SHORTEST_ROW = 8


def replace(_old: Val, new: Val) -> Val:
    """The combiner that writes."""
    return new


def scatter_flat(
    b: Builder, x: Val, places: Val, updates: Val, combine: Combine, unique: bool = False
) -> Val:
    """``x`` (1-D) with ``updates`` combined in at ``places`` (int64, of equal shape)."""
    if places.numel == 0:
        return x
    rows = b.reshape(places, (places.numel, 1))
    return b.scatter(
        [x],
        rows,
        [b.reshape(updates, (updates.numel,))],
        combine,
        window_dims=[],
        inserted=[0],
        index_map=[0],
        index_vector_dim=1,
        unique=unique,
    )[0]


def _combine_block(b: Builder, x: Val, places: dict[int, Val], block: Val, combine: Combine) -> Val:
    """``x`` with ``block``, of its rank, combined in at one place (int64) of each of some dimensions."""
    starts: list[Val | int] = [0] * x.ndim
    inside = []
    for dim, place in places.items():
        starts[dim] = start = b.reshape(place, ())
        inside += [b.ge(start, 0), b.lt(start, x.shape[dim])]
    return b.write_block(x, block, starts, b.all_of(*inside), combine)


def _scatter_rows(b: Builder, x: Val, dim: int, index: Val, source: Val, combine: Combine) -> Val:
    """``x`` with slice i of ``source`` along ``dim`` combined in at ``index[i]``."""
    if index.numel == 0 or x.numel == 0:
        return x
    if index.numel == 1:
        return _combine_block(b, x, {dim: index}, source, combine)
    outer, inner = prod(x.shape[:dim]), prod(x.shape[dim + 1 :])
    if outer > 1 and inner < _SHORTEST_ROW:
        # Slices of scattered elements: bring each together first (8 ms instead of 54 for 1 M floats).
        front = [dim, *(axis for axis in range(x.ndim) if axis != dim)]
        back = [*range(1, dim + 1), 0, *range(dim + 1, x.ndim)]
        moved = _scatter_rows(
            b, b.transpose(x, front), 0, index, b.transpose(source, front), combine
        )
        return b.transpose(moved, back)
    return b.scatter(
        [x],
        b.reshape(index, (index.numel, 1)),
        [source],
        combine,
        window_dims=[axis for axis in range(x.ndim) if axis != dim],
        inserted=[dim],
        index_map=[dim],
        index_vector_dim=1,
    )[0]


# Reductions, the same for scatter_reduce and index_reduce


def _combiner(b: Builder, reduce: str, dtype: torch.dtype) -> tuple[Combine, Number]:
    """The combiner of a reduction of that name and its identity."""
    if reduce in ("sum", "add", "mean"):
        return b.add, 0
    if reduce in ("prod", "multiply"):
        return b.mul, 1
    if reduce in ("amax", "amin"):
        return (b.max, lowest(dtype)) if reduce == "amax" else (b.min, highest(dtype))
    raise LoweringError("scatter", f"no reduction is named {reduce!r}")


def _mean(b: Builder, total: Val, count: Val) -> Val:
    """total / count, rounded down for integers."""
    divisor = b.convert(b.max(count, 1), total.dtype)
    if is_float(total.dtype) or total.dtype.is_complex:
        return b.div(total, divisor)
    left, right = b.together(total, divisor)
    quotient = b.div(left, right)
    return b.select(b.lt(b.rem(left, right), 0), b.sub(quotient, 1), quotient)


def _reduce_at(
    b: Builder,
    x: Val,
    reduce: str,
    include_self: bool,
    apply: Callable[[Val, Val | Number, Combine], Val],
    source: Val,
) -> Val:
    """Reduce ``source`` into ``x``; ``apply(target, updates, combine)`` scatters to the places given."""
    wide = opmath(x.dtype)
    combine, identity = _combiner(b, reduce, wide)
    target, updates = b.convert(x, wide), b.convert(source, wide)
    if not include_self:
        target = apply(target, identity, replace)
    result = apply(target, updates, combine)
    if reduce == "mean":
        counts = b.full(x.shape, 1 if include_self else 0, torch.int32)
        result = _mean(b, result, apply(counts, 1, b.add))
    return b.convert(result, x.dtype)


# Elements: scatter and scatter_reduce


def _element_scatter(
    b: Builder, x: Val, dim: int, index: Val
) -> Callable[[Val, Val | Number, Combine], Val]:
    """Scatters updates, of the index's shape or larger or one number, along ``dim``."""
    sizes = x.shape or (1,)
    shape = index.shape
    if len(shape) != len(sizes):
        # A 0-d tensor goes with an index of one dimension, and the other way round.
        shape = (index.numel,)
    places = b.reshape(b.convert(index, torch.int64), shape)
    linear = element_index(b, sizes, places, dim % len(sizes)) if index.numel else places

    def apply(target: Val, updates: Val | Number, combine: Combine) -> Val:
        if isinstance(updates, Val):
            given = updates if updates.ndim == len(shape) else b.reshape(updates, (updates.numel,))
            values = b.slice(given, [0] * given.ndim, shape)
        else:
            values = b.full(shape, updates, target.dtype)
        flat = scatter_flat(b, b.reshape(target, (target.numel,)), linear, values, combine)
        return b.reshape(flat, target.shape)

    return apply


def _value_like(b: Builder, value: Val | Number, index: Val, dtype: torch.dtype) -> Val:
    return b.broadcast_to(b.scalar(value, dtype), index.shape)


@emitter("aten.scatter.src")
def scatter_src(b: Builder, out: Any, x: Val, dim: int, index: Val, src: Val) -> Val:
    return _element_scatter(b, x, dim, index)(x, b.convert(src, x.dtype), replace)


@emitter("aten.scatter.value")
def scatter_value(b: Builder, out: Any, x: Val, dim: int, index: Val, value: Val | Number) -> Val:
    return scatter_src(b, out, x, dim, index, _value_like(b, value, index, x.dtype))


@emitter("aten.scatter.reduce")
def scatter_with_reduce(
    b: Builder, out: Any, x: Val, dim: int, index: Val, src: Val, *, reduce: str
) -> Val:
    return _reduce_at(b, x, reduce, True, _element_scatter(b, x, dim, index), src)


@emitter("aten.scatter.value_reduce")
def scatter_value_reduce(
    b: Builder, out: Any, x: Val, dim: int, index: Val, value: Val | Number, *, reduce: str
) -> Val:
    src = _value_like(b, value, index, opmath(x.dtype))
    return _reduce_at(b, x, reduce, True, _element_scatter(b, x, dim, index), src)


@emitter("aten.scatter_add")
def scatter_add(b: Builder, out: Any, x: Val, dim: int, index: Val, src: Val) -> Val:
    return _reduce_at(b, x, "sum", True, _element_scatter(b, x, dim, index), src)


@emitter("aten.scatter_reduce.two")
def scatter_reduce(
    b: Builder,
    out: Any,
    x: Val,
    dim: int,
    index: Val,
    src: Val,
    reduce: str,
    include_self: bool = True,
) -> Val:
    return _reduce_at(b, x, reduce, include_self, _element_scatter(b, x, dim, index), src)


# Slices: index_add, index_copy, index_fill, index_reduce


def _slice_scatter(
    b: Builder, x: Val, dim: int, index: Val
) -> Callable[[Val, Val | Number, Combine], Val]:
    """Scatters slices along ``dim``: updates of x's shape but for ``dim``, or one number."""
    sizes = x.shape or (1,)
    dim %= len(sizes)
    places = b.reshape(b.convert(index, torch.int64), (index.numel,))
    shape = (*sizes[:dim], index.numel, *sizes[dim + 1 :])

    def apply(target: Val, updates: Val | Number, combine: Combine) -> Val:
        given = updates if isinstance(updates, Val) else b.full(shape, updates, target.dtype)
        values = b.reshape(given, shape)
        result = _scatter_rows(b, b.reshape(target, sizes), dim, places, values, combine)
        return b.reshape(result, target.shape)

    return apply


@emitter("aten.index_add")
def index_add(
    b: Builder, out: Any, x: Val, dim: int, index: Val, source: Val, alpha: Val | Number = 1
) -> Val:
    if not is_one(alpha):
        wide = opmath(x.dtype)
        source = b.mul(b.convert(source, wide), operand(b, alpha, wide))
    return _reduce_at(b, x, "sum", True, _slice_scatter(b, x, dim, index), source)


@emitter("aten.index_copy")
def index_copy(b: Builder, out: Any, x: Val, dim: int, index: Val, source: Val) -> Val:
    source = b.convert(source, x.dtype)
    inner = prod(x.shape[dim % max(x.ndim, 1) + 1 :])
    if x.ndim < 2 or inner >= _SHORTEST_ROW or index.numel <= 1 or x.numel == 0:
        return _slice_scatter(b, x, dim, index)(x, source, replace)
    # Read each element from the slice that is written there, if any: nothing is written at random.
    dim %= x.ndim
    places = b.reshape(b.convert(index, torch.int64), (index.numel,))
    none = b.full((x.shape[dim],), -1, torch.int64)
    writer = scatter_flat(b, none, places, b.iota(places.shape, 0), replace)
    written = b.broadcast_in_dim(b.ge(writer, 0), x.shape, (dim,))
    return b.select(written, b.take(source, b.max(writer, 0), dim), x)


@emitter("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(b: Builder, out: Any, x: Val, dim: int, index: Val, value: Val | Number) -> Val:
    # A mask of the slices: writing each would touch memory at random.
    sizes = x.shape or (1,)
    dim %= len(sizes)
    size = sizes[dim]
    places = b.reshape(wrapped(b, index, size), (index.numel,))
    chosen = scatter_flat(
        b,
        b.full((size,), False, torch.bool),
        places,
        b.full(places.shape, True, torch.bool),
        replace,
    )
    mask = b.broadcast_in_dim(chosen, sizes, (dim,))
    filled = b.select(mask, b.scalar(value, x.dtype), b.reshape(x, sizes))
    return b.reshape(filled, x.shape)


@emitter("aten.index_reduce")
def index_reduce(
    b: Builder,
    out: Any,
    x: Val,
    dim: int,
    index: Val,
    source: Val,
    reduce: str,
    *,
    include_self: bool = True,
) -> Val:
    return _reduce_at(b, x, reduce, include_self, _slice_scatter(b, x, dim, index), source)


# index_put and put


def _put_at(b: Builder, x: Val, where: Coordinates, values: Val, accumulate: bool) -> Val:
    """Write ``values``, which broadcast to what indexing gives."""
    rest = [size for dim, size in enumerate(x.shape) if dim not in where.dims]
    shape = (*rest[: where.position], *where.shape, *rest[where.position :])
    if 0 in shape or x.numel == 0:
        return x
    wide = opmath(x.dtype) if accumulate else x.dtype
    target = b.convert(x, wide)
    updates = b.broadcast_to(b.convert(values, wide), shape)
    combine = b.add if accumulate else replace
    if prod(where.shape) == 1:
        block = [1 if dim in where.dims else size for dim, size in enumerate(x.shape)]
        places = dict(zip(where.dims, where.values, strict=True))
        written = _combine_block(b, target, places, b.reshape(updates, block), combine)
        return b.convert(written, x.dtype)
    rank = len(where.shape)
    window = [dim for dim in range(len(shape)) if not where.position <= dim < where.position + rank]
    dims, vectors = where.dims, where.values
    if where.adjacent:
        # One index instead of a vector.
        first, count = dims[0], len(dims)
        merged = prod(x.shape[first : first + count])
        target = b.reshape(target, (*x.shape[:first], merged, *x.shape[first + count :]))
        dims, vectors = [first], [where.linear(b, x.shape, drop=True)]
    result = b.scatter(
        [target],
        b.concat([b.unsqueeze(vector, -1) for vector in vectors], -1),
        [updates],
        combine,
        window_dims=window,
        inserted=dims,
        index_map=dims,
        index_vector_dim=rank,
    )[0]
    return b.convert(b.reshape(result, x.shape), x.dtype)


def _put_by_mask(
    b: Builder, op: str, x: Val, indices: Indices, values: Val, accumulate: bool
) -> Val:
    """index_put where one mask is the only index: nothing in it depends on how many elements it holds."""
    first = next(dim for dim, index in enumerate(indices) if index is not None)
    mask = indices[first]
    assert mask is not None
    if sum(index is not None for index in indices) > 1:
        raise LoweringError(op, "a mask together with other indices")
    mask = b.convert(mask, torch.bool)
    after = x.ndim - first - mask.ndim
    # `values` has one dimension for all elements of the mask.
    column = values.ndim - 1 - after
    if column >= 0:
        if values.shape[column] == 0:
            return x
        head, tail = values.shape[:column], values.shape[column + 1 :]
        spread = (1,) * mask.ndim
        if values.shape[column] > 1:
            # The k-th element of the mask takes the k-th of the values: count them.
            rank = prefix_sum(
                b, b.convert(b.reshape(mask, (mask.numel,)), counter_dtype(mask.numel))
            )
            values = b.take(values, b.clamp(0, b.sub(rank, 1), values.shape[column] - 1), column)
            spread = mask.shape
        values = b.reshape(values, (*head, *spread, *tail))
    values = b.convert(values, x.dtype)
    chosen = b.reshape(mask, (*mask.shape, *([1] * after)))
    return b.select(chosen, b.add(x, values) if accumulate else values, x)


def _index_put(b: Builder, op: str, x: Val, indices: Indices, values: Val, accumulate: bool) -> Val:
    if all(index is None for index in indices):
        spread = b.broadcast_to(b.convert(values, x.dtype), x.shape)
        return b.add(x, spread) if accumulate else spread
    if any(is_mask(index) for index in indices):
        return _put_by_mask(b, op, x, indices, values, accumulate)
    return _put_at(b, x, coordinates(b, op, x.shape, indices), values, accumulate)


@emitter("aten.index_put", "aten._unsafe_index_put")
def index_put(
    b: Builder, out: Any, x: Val, indices: Indices, values: Val, accumulate: bool = False
) -> Val:
    return _index_put(b, "aten.index_put.default", x, indices, values, accumulate)


@emitter("aten._index_put_impl")
def index_put_impl(
    b: Builder,
    out: Any,
    x: Val,
    indices: Indices,
    values: Val,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Val:
    return _index_put(b, "aten._index_put_impl.default", x, indices, values, accumulate)


@emitter("aten._unsafe_masked_index_put_accumulate")
def unsafe_masked_index_put_accumulate(
    b: Builder, out: Any, x: Val, mask: Val, indices: Indices, values: Val
) -> Val:
    kept = b.select(b.convert(mask, torch.bool), b.convert(values, x.dtype), 0)
    return _index_put(b, "aten._unsafe_masked_index_put_accumulate.default", x, indices, kept, True)


@emitter("aten.put")
def put(b: Builder, out: Any, x: Val, index: Val, source: Val, accumulate: bool = False) -> Val:
    wide = opmath(x.dtype) if accumulate else x.dtype
    flat = b.reshape(b.convert(x, wide), (x.numel,))
    combine = b.add if accumulate else replace
    result = scatter_flat(b, flat, wrapped(b, index, x.numel), b.convert(source, wide), combine)
    return finish(b, b.reshape(result, x.shape), out)


@emitter("aten.masked_scatter")
def masked_scatter(b: Builder, out: Any, x: Val, mask: Val, source: Val) -> Val:
    if source.numel == 0 or x.numel == 0:
        return finish(b, x, out)
    chosen = b.broadcast_to(b.convert(mask, torch.bool), x.shape)
    rank = prefix_sum(b, b.convert(b.reshape(chosen, (x.numel,)), counter_dtype(x.numel)))
    values = b.take(
        b.reshape(source, (source.numel,)), b.clamp(0, b.sub(rank, 1), source.numel - 1)
    )
    return b.select(chosen, b.reshape(values, x.shape), x)
