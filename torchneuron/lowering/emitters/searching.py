"""Searching sorted sequences and counting: searchsorted, bucketize, isin, histc."""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.emitters.indexing import element_index, take_along_last
from torchneuron.lowering.emitters.scatter import scatter_flat
from torchneuron.lowering.emitters.sorting import sort_positions
from torchneuron.lowering.emitting import finish, shape_of, tensor
from torchneuron.lowering.registry import emitter

# Up to so many test elements isin compares with each of them.
_COMPARED = 32


def search_sorted(b: Builder, sequence: Val, values: Val, right: bool) -> Val:
    """For each of ``values`` (rows, m) how many elements of its row of ``sequence`` (rows, n) go before it.

    Those smaller or, with ``right``, those not larger; a NaN goes last. The sequence is sorted. int64.
    """
    size = sequence.shape[-1]
    if size == 0 or values.numel == 0:
        return b.full(values.shape, 0, torch.int64)
    flat = b.reshape(sequence, (sequence.numel,))
    shape = (*values.shape[:-1], size)

    # PyTorch's own bisection: which elements are met matters if the sequence holds NaN.
    def probe(_: Val, start: Val, end: Val, flat: Val, values: Val) -> list[Val]:
        middle = b.add(start, b.shift_right(b.sub(end, start), 1))
        element = b.take(flat, element_index(b, shape, b.min(middle, size - 1), 1))
        stays = b.gt(element, values) if right else b.ge(element, values)
        open_ = b.lt(start, end)
        goes = b.and_(open_, b.not_(stays))
        return [
            b.select(goes, b.add(middle, 1), start),
            b.select(b.and_(open_, stays), middle, end),
            flat,
            values,
        ]

    start, end = b.full(values.shape, 0, torch.int64), b.full(values.shape, size, torch.int64)
    return b.for_(size.bit_length(), [start, end, flat, values], probe)[0]


def _search(
    b: Builder, out: Any, sequence: Val, values: Val | Number, right: bool, sorter: Val | None
) -> Val:
    dtype = b.result_type(sequence, values)
    wanted = tensor(b, values, dtype)
    if sorter is not None:
        sequence = take_along_last(b, sequence, sorter)
    sequence = b.convert(sequence, dtype)
    size = sequence.shape[-1]
    shape = wanted.shape
    if wanted.numel == 0 or size == 0:
        return b.full(shape_of(out), 0, out.dtype)
    rows = sequence.numel // size
    found = search_sorted(
        b,
        b.reshape(sequence, (rows, size)),
        b.reshape(wanted, (rows, wanted.numel // rows)),
        right,
    )
    return finish(b, b.reshape(found, shape), out)


@emitter("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    b: Builder,
    out: Any,
    sorted_sequence: Val,
    x: Val | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Val | None = None,
) -> Val:
    return _search(b, out, sorted_sequence, x, right or side == "right", sorter)


@emitter("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    b: Builder,
    out: Any,
    x: Val | Number,
    boundaries: Val,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> Val:
    return _search(b, out, boundaries, x, right, None)


@emitter("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def isin(
    b: Builder,
    out: Any,
    elements: Val | Number,
    test: Val | Number,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Val:
    dtype = b.result_type(elements, test)
    left, right = tensor(b, elements, dtype), tensor(b, test, dtype)
    found = _contained(b, left, b.reshape(right, (right.numel,)))
    return finish(b, b.not_(found) if invert else found, out)


def _contained(b: Builder, x: Val, test: Val) -> Val:
    count = test.shape[0]
    if count == 0 or x.numel == 0:
        return b.full(x.shape, False, torch.bool)
    if count <= _COMPARED:
        spread = b.broadcast_in_dim(test, (*x.shape, count), (x.ndim,))
        return b.reduce_or(b.eq(b.unsqueeze(x, -1), spread), [x.ndim])
    ordered = take_along_last(b, test, sort_positions(b, test))
    values = b.reshape(x, (1, x.numel))
    place = search_sorted(b, b.reshape(ordered, (1, count)), values, right=False)
    neighbour = b.take(ordered, b.min(b.reshape(place, (x.numel,)), count - 1))
    return b.reshape(b.eq(neighbour, b.reshape(x, (x.numel,))), x.shape)


@emitter("aten.histc")
def histc(
    b: Builder, out: Any, x: Val, bins: int = 100, min: Val | Number = 0, max: Val | Number = 0
) -> Val:
    """Counts in ``bins`` equal bins from ``min`` to ``max``, or over the data's range where those are equal."""
    low, high = b.scalar(min, x.dtype), b.scalar(max, x.dtype)
    if x.numel == 0:
        return b.full(shape_of(out), 0, out.dtype)
    values = b.reshape(x, (x.numel,))
    unset = b.eq(low, high)
    low = b.select(unset, b.reduce_min(values), low)
    high = b.select(unset, b.reduce_max(values), high)
    flat = b.eq(low, high)
    low, high = b.select(flat, b.sub(low, 1), low), b.select(flat, b.add(high, 1), high)
    position = b.div(b.mul(b.sub(values, low), bins), b.sub(high, low))
    bin_ = b.clamp(0, b.convert(position, torch.int64), bins - 1)
    counted = b.and_(b.ge(values, low), b.le(values, high))
    places = b.select(counted, bin_, bins)
    ones = b.full(places.shape, 1, torch.int64)
    counts = scatter_flat(b, b.full((bins,), 0, torch.int64), places, ones, b.add)
    return finish(b, counts, out)
