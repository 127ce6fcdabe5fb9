"""Ops whose results' sizes depend on data, padded (see lowering/bounded.py), and their relatives of known size."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from torchneuron.lowering.bounded import BoundedOutput, bounded, output
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitters.indexing import flat_strides
from torchneuron.lowering.emitters.scan import counter_dtype, prefix_sum
from torchneuron.lowering.emitters.scatter import replace, scatter_flat
from torchneuron.lowering.emitters.sorting import (
    key_positions,
    ordered_bits,
    run_starts,
    sort_positions,
)
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.hlo.shape import broadcast_shapes
from torchneuron.lowering.registry import emitter


def _flat(b: Builder, x: Val) -> Val:
    return b.reshape(x, (x.numel,))


def _compact(b: Builder, keep: Val, values: Val, size: int, fill: int = 0) -> tuple[Val, Val]:
    """The ``values`` (1-D) to keep, moved together into ``size`` elements, and how many there are (int64[1])."""
    count = keep.shape[0]
    base = b.full((size,), fill, values.dtype)
    if count == 0:
        return base, b.full((1,), 0, torch.int64)
    rank = prefix_sum(b, b.convert(keep, counter_dtype(count)))
    # What is not kept, or does not fit, goes outside and is dropped.
    places = b.select(keep, b.sub(rank, 1), max(size, count))
    total = b.convert(b.slice(rank, [count - 1], [count]), torch.int64)
    return scatter_flat(b, base, places, values, replace, unique=True), total


# nonzero, masked_select


def _positions(b: Builder, flat: Val, sizes: Sequence[int]) -> Val:
    """Indices into a flat tensor of ``sizes`` (n,) as coordinates (n, number of sizes)."""
    columns = []
    for dim, (size, stride) in enumerate(zip(sizes, flat_strides(sizes), strict=True)):
        column = b.div(flat, stride) if stride > 1 else flat
        columns.append(b.unsqueeze(b.rem(column, max(size, 1)) if dim else column, -1))
    return b.concat(columns, 1) if columns else b.full((flat.numel, 0), 0, torch.int64)


@bounded("aten.nonzero", lambda x: [output(torch.int64, (x.numel(), x.dim()), 0)])
def nonzero(b: Builder, x: Val) -> tuple[Val, Val]:
    keep = _flat(b, b.convert(x, torch.bool))
    flat, count = _compact(b, keep, b.iota(keep.shape, 0), keep.numel)
    return _positions(b, flat, x.shape), count


@emitter("aten.nonzero_static")
def nonzero_static(b: Builder, out: Any, x: Val, *, size: int, fill_value: int = -1) -> Val:
    keep = _flat(b, b.convert(x, torch.bool))
    if size == 0 or x.ndim == 0:
        return b.full(shape_of(out), fill_value, torch.int64)
    flat, count = _compact(b, keep, b.iota(keep.shape, 0), size)
    given = b.lt(b.iota((size, 1), 0), b.reshape(count, (1, 1)))
    return b.select(given, _positions(b, flat, x.shape), fill_value)


def _masked_select_outputs(x: Any, mask: Any) -> list[BoundedOutput]:
    shape = broadcast_shapes(tuple(x.shape), tuple(mask.shape))
    return [output(x.dtype, (prod(shape),), 0)]


@bounded("aten.masked_select", _masked_select_outputs)
def masked_select(b: Builder, x: Val, mask: Val) -> tuple[Val, Val]:
    shape = broadcast_shapes(x.shape, mask.shape)
    keep = _flat(b, b.broadcast_to(b.convert(mask, torch.bool), shape))
    return _compact(b, keep, _flat(b, b.broadcast_to(x, shape)), keep.numel)


# unique


def _unique_outputs(
    values: Sequence[int], inverse: Sequence[int], flags: Sequence[bool], dtype: Any
) -> Any:
    """Values, inverse indices and counts; those not asked for are empty."""
    return [
        output(dtype, values, 0),
        output(torch.int64, inverse if flags[0] else (0,)),
        output(torch.int64, (values[0],), 0) if flags[1] else output(torch.int64, (0,)),
    ]


def _groups(
    b: Builder, starts: Val, order: Val | None, inverse: Sequence[int] | None, counts: bool
) -> tuple[Val, Val, Val]:
    """Inverse indices and counts, empty unless wanted, of elements that come in runs which begin at ``starts``.

    ``order`` says which element stands at a place of ``starts`` (None: the same one); ``inverse`` is the shape of the
    inverse indices. Third the number of runs.
    """
    size = starts.numel
    nothing = b.full((0,), 0, torch.int64)
    if size == 0:
        shaped = b.full(inverse, 0, torch.int64) if inverse is not None else nothing
        return shaped, nothing, b.full((1,), 0, torch.int64)
    rank = prefix_sum(b, b.convert(starts, counter_dtype(size)))
    group = b.sub(b.convert(rank, torch.int64), 1)
    back, lengths = nothing, nothing
    if inverse is not None:
        back = group
        if order is not None:
            back = scatter_flat(
                b, b.full((size,), 0, torch.int64), order, group, replace, unique=True
            )
        back = b.reshape(back, inverse)
    if counts:
        ones = b.full((size,), 1, torch.int64)
        lengths = scatter_flat(b, b.full((size,), 0, torch.int64), group, ones, b.add)
    return back, lengths, b.add(b.slice(group, [size - 1], [size]), 1)


def _unique(
    b: Builder, x: Val, ordered: bool, return_inverse: bool, return_counts: bool
) -> tuple[Val, ...]:
    """Unique elements of a flat tensor: of its runs, after sorting if ``ordered``."""
    values = _flat(b, x)
    order = None
    if ordered:
        order = sort_positions(b, values)
        values = b.take(values, order) if values.numel else values
    starts = run_starts(b, values)
    inverse = x.shape if return_inverse else None
    back, counts, number = _groups(b, starts, order, inverse, return_counts)
    return _compact(b, starts, values, values.numel)[0], back, counts, number


def _unique2_outputs(
    x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> list[BoundedOutput]:
    return list(_unique_outputs((x.numel(),), x.shape, (return_inverse, return_counts), x.dtype))


@bounded("aten._unique2", _unique2_outputs)
def unique2(
    b: Builder,
    x: Val,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Val, ...]:
    return _unique(b, x, True, return_inverse, return_counts)


@bounded(
    "aten._unique",
    lambda x, sorted=True, return_inverse=False: _unique2_outputs(x, sorted, return_inverse)[:2],
)
def unique(
    b: Builder, x: Val, sorted: bool = True, return_inverse: bool = False
) -> tuple[Val, ...]:
    values, inverse, _, number = _unique(b, x, True, return_inverse, False)
    return values, inverse, number


# unique along a dimension


def _check_rows(op: str, x: Any, dim: int) -> None:
    if x.ndim == 0 or dim % x.ndim != 0:
        raise LoweringError(op, "only dimension 0 can be narrowed: move the dimension there first")
    if 0 in tuple(x.shape):
        raise LoweringError(op, "an empty tensor")


def _row_order(b: Builder, rows: Val) -> Val:
    """Positions that sort ``rows`` (n, m) lexicographically: stable sorts from the last column to the first."""
    count, columns = rows.shape

    def by_column(i: Val, order: Val, keys: Val) -> list[Val]:
        key = b.dynamic_slice(keys, [0, b.sub(columns - 1, i)], (count, 1))
        position = key_positions(b, b.take(b.reshape(key, (count,)), order))
        return [b.take(order, position), keys]

    return b.for_(columns, [b.iota((count,), 0), ordered_bits(b, rows)], by_column)[0]


def _unique_rows(b: Builder, x: Val, ordered: bool) -> tuple[Val, ...]:
    """Like PyTorch's CPU kernel it gives inverse indices and counts even if they are not asked for."""
    count = x.shape[0]
    rows = b.reshape(x, (count, x.numel // count))
    order = _row_order(b, rows) if ordered else None
    values = b.take(rows, order, 0) if order is not None else rows
    first = b.full((1,), True, torch.bool)
    changed = b.ne(b.slice_dim(values, 0, 1, count), b.slice_dim(values, 0, 0, count - 1))
    starts = b.concat([first, b.reduce_or(changed, [1])], 0)
    back, counts, number = _groups(b, starts, order, (count,), True)
    places = _compact(b, starts, b.iota((count,), 0), count)[0]
    return b.reshape(b.take(values, places, 0), x.shape), back, counts, number


def _unique_dim_outputs(
    x: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> list[BoundedOutput]:
    _check_rows("aten.unique_dim.default", x, dim)
    return list(_unique_outputs(tuple(x.shape), (x.shape[0],), (True, True), x.dtype))


@bounded("aten.unique_dim", _unique_dim_outputs)
def unique_dim(
    b: Builder,
    x: Val,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Val, ...]:
    return _unique_rows(b, x, ordered=True)


def _consecutive_outputs(
    x: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> list[BoundedOutput]:
    if dim is not None:
        return _unique_dim_outputs(x, dim, True, return_inverse, return_counts)
    return _unique2_outputs(x, True, return_inverse, return_counts)


@bounded("aten.unique_consecutive", _consecutive_outputs)
def unique_consecutive(
    b: Builder,
    x: Val,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Val, ...]:
    if dim is not None:
        return _unique_rows(b, x, ordered=False)
    return _unique(b, x, False, return_inverse, return_counts)


@bounded(
    "aten.unique_dim_consecutive",
    lambda x, dim, return_inverse=False, return_counts=False: _consecutive_outputs(
        x, return_inverse, return_counts, dim
    ),
)
def unique_dim_consecutive(
    b: Builder, x: Val, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Val, ...]:
    return _unique_rows(b, x, ordered=False)


# Of known size


@emitter("aten.repeat_interleave.Tensor")
def repeat_interleave(b: Builder, out: Any, repeats: Val, *, output_size: int | None = None) -> Val:
    """Each index as often as ``repeats`` says: at j the number of indices whose copies end at j or before."""
    (size,) = shape_of(out)
    if size == 0 or repeats.numel == 0:
        return b.full((size,), 0, out.dtype)
    ends = prefix_sum(b, b.convert(repeats, torch.int64))
    ones = b.full(ends.shape, 1, torch.int64)
    ended = scatter_flat(b, b.full((size,), 0, torch.int64), ends, ones, b.add)
    return finish(b, prefix_sum(b, ended), out)
