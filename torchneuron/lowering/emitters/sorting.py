"""sort, topk, kthvalue, median, mode.

XLA:CPU sorts one array of integers far faster than several arrays together with a comparator. So an element becomes
an unsigned key of the same order, and key and position are packed into one integer: such a sort is stable, and the
low bits of its result are the permutation (1 M floats: 65 ms, 420 ms with a comparator; PyTorch takes 165 ms).
Order statistics need no sort: they search the key bit by bit, counting the smaller ones.
"""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import bits_dtype, is_float
from torchneuron.lowering.emitters.indexing import take_along_last
from torchneuron.lowering.emitters.scan import prefix
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter


def ordered_bits(b: Builder, x: Val) -> Val:
    """Unsigned integers in the order of ``x``, NaN last and all NaNs equal, -0.0 equal to 0.0."""
    if x.dtype.is_complex:
        raise LoweringError("sort", "complex numbers have no order")
    if x.dtype is torch.bool:
        return b.convert(x, torch.uint8)
    if not x.dtype.is_signed:
        return x
    dtype = bits_dtype(x.dtype)
    sign = 1 << (8 * x.dtype.itemsize - 1)
    bits = b.bitcast_convert(x, dtype)
    if not is_float(x.dtype):
        return b.xor(bits, sign)
    bits = b.select(b.eq(bits, sign), 0, bits)
    key = b.select(b.ge(bits, sign), b.not_(bits), b.or_(bits, sign))
    return b.select(b.isnan(x), 2 * sign - 1, key)


def _sorted_packed(b: Builder, key: Val, width: int) -> Val:
    """Positions (int64) that sort ``key``, whose values have ``width`` bits, along the last dimension; stable."""
    size = key.shape[-1]
    index_bits = max(1, (size - 1).bit_length())
    dtype = torch.uint32 if width + index_bits <= 32 else torch.uint64
    dim = key.ndim - 1
    packed = b.or_(b.shift_left(b.convert(key, dtype), index_bits), b.iota(key.shape, dim, dtype))
    ordered = b.sort([packed], dim, lambda left, right: b.lt(left, right), stable=False)[0]
    return b.convert(b.and_(ordered, (1 << index_bits) - 1), torch.int64)


def sort_positions(b: Builder, x: Val, descending: bool = False) -> Val:
    """Positions (int64) that sort ``x`` stably along its last dimension."""
    if x.shape[-1] <= 1 or x.numel == 0:
        return b.full(x.shape, 0, torch.int64)
    key = ordered_bits(b, x)
    return key_positions(b, b.not_(key) if descending else key)


def key_positions(b: Builder, key: Val) -> Val:
    """Positions (int64) that sort unsigned integers stably along the last dimension."""
    if key.dtype is not torch.uint64:
        return _sorted_packed(b, key, 8 * key.dtype.itemsize)
    # 64 bits and a position fit in no integer: sort by the low half, then stably by the high half.
    by_low = _sorted_packed(b, b.and_(key, 0xFFFFFFFF), 32)
    high = take_along_last(b, b.shift_right(key, 32), by_low)
    return take_along_last(b, by_low, _sorted_packed(b, high, 32))


def dim_last(b: Builder, x: Val, dim: int) -> Val:
    """``x`` with ``dim`` moved to the end."""
    return b.transpose(x, [axis for axis in range(x.ndim) if axis != dim % x.ndim] + [dim % x.ndim])


def dim_back(b: Builder, x: Val, dim: int) -> Val:
    """The inverse of ``dim_last``."""
    dim %= x.ndim
    return b.transpose(x, [*range(dim), x.ndim - 1, *range(dim, x.ndim - 1)])


def _scalar_result(b: Builder, x: Val) -> tuple[Val, Val]:
    """What ops over a dimension give for a 0-d tensor."""
    return x, b.full((), 0, torch.int64)


def sort_pair(b: Builder, x: Val, dim: int, descending: bool) -> tuple[Val, Val]:
    """Sorted values and their positions along ``dim``."""
    if x.ndim == 0:
        return _scalar_result(b, x)
    rows = dim_last(b, x, dim)
    positions = sort_positions(b, rows, descending)
    values = take_along_last(b, rows, positions) if rows.numel else rows
    return dim_back(b, values, dim), dim_back(b, positions, dim)


@emitter("aten.sort")
def sort(b: Builder, out: Any, x: Val, dim: int = -1, descending: bool = False) -> tuple[Val, Val]:
    return sort_pair(b, x, dim, descending)


@emitter("aten.sort.stable")
def sort_stable(
    b: Builder,
    out: Any,
    x: Val,
    *,
    stable: bool | None = None,
    dim: int = -1,
    descending: bool = False,
) -> tuple[Val, Val]:
    return sort_pair(b, x, dim, descending)


# topk


def top_positions(b: Builder, x: Val, k: int, largest: bool) -> Val:
    """Positions (int64) of the ``k`` extreme elements along the last dimension, in order; NaN is the largest."""
    size = x.shape[-1]
    exact = x.dtype.is_floating_point and x.dtype.itemsize <= 4
    exact = exact or x.dtype is torch.bool or (x.dtype.itemsize <= 2 and not x.dtype.is_complex)
    if exact and 0 < 8 * k <= size:
        return _top_floats(b, b.convert(x, torch.float32), k, largest)
    return b.slice_dim(sort_positions(b, x, descending=largest), x.ndim - 1, 0, k)


def _top_floats(b: Builder, x: Val, k: int, largest: bool) -> Val:
    """In the form that XLA:CPU turns into a partial sort: values and int32 positions, by value only, sliced.

    It orders by bits, -NaN < -inf < -0.0 < 0.0 < inf < NaN.
    """
    size, dim = x.shape[-1], 1
    rows = b.reshape(x, (x.numel // size, size))
    nan = b.bitcast_convert(
        b.full((), 0x7FFFFFFF if largest else 0xFFFFFFFF, torch.uint32), torch.float32
    )
    signed = rows if largest else b.neg(rows)
    signed = b.select(b.eq(rows, 0), 0.0, signed)
    signed = b.select(b.isnan(rows), nan, signed)
    operands = [signed, b.iota(rows.shape, dim, torch.int32)]
    positions = b.sort(operands, dim, lambda left, right, *_: b.gt(left, right))[1]
    top = b.slice_dim(positions, dim, 0, k)
    return b.convert(b.reshape(top, (*x.shape[:-1], k)), torch.int64)


@emitter("aten.topk")
def topk(
    b: Builder, out: Any, x: Val, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Val, Val]:
    if x.ndim == 0:
        return _scalar_result(b, x) if k else (_nothing(b, x.dtype), _nothing(b, torch.int64))
    rows = dim_last(b, x, dim)
    if k == 0 or rows.numel == 0:
        shape = (*rows.shape[:-1], k)
        empty = (b.full(shape, 0, x.dtype), b.full(shape, 0, torch.int64))
        return dim_back(b, empty[0], dim), dim_back(b, empty[1], dim)
    positions = top_positions(b, rows, k, largest)
    return dim_back(b, take_along_last(b, rows, positions), dim), dim_back(b, positions, dim)


def _nothing(b: Builder, dtype: torch.dtype) -> Val:
    return b.full((0,), 0, dtype)


# Order statistics


def kth_position(b: Builder, x: Val, k: Val) -> Val:
    """Where along the last dimension stands the ``k``-th smallest (0-based, one per row, int32): first of equals.

    The key is found from its highest bit down: a bit is set if at most k keys are smaller than the key with it.
    """
    key = ordered_bits(b, x)
    bits = 8 * key.dtype.itemsize
    dim = x.ndim - 1

    def step(i: Val, found: Val, rank: Val, keys: Val) -> list[Val]:
        shift = b.convert(b.sub(bits - 1, i), found.dtype)
        candidate = b.or_(found, b.shift_left(b.full((), 1, found.dtype), shift))
        smaller = b.lt(keys, b.unsqueeze(candidate, -1))
        count = b.reduce_sum(b.convert(smaller, torch.int32), [dim])
        return [b.select(b.le(count, rank), candidate, found), rank, keys]

    found = b.for_(bits, [b.full(x.shape[:-1], 0, key.dtype), k, key], step)[0]
    size = x.shape[-1]
    places = b.select(b.eq(key, b.unsqueeze(found, -1)), b.iota(x.shape, dim), size - 1)
    return b.reduce_min(places, [dim])


def _kth(b: Builder, x: Val, dim: int, k: Val, keepdim: bool) -> tuple[Val, Val]:
    """Value and position of the k-th smallest of each row of ``x`` (``dim`` last already)."""
    position = b.unsqueeze(kth_position(b, x, k), -1)
    value = take_along_last(b, x, position)
    if keepdim:
        return dim_back(b, value, dim), dim_back(b, position, dim)
    return b.squeeze(value, -1), b.squeeze(position, -1)


def _empty_pair(b: Builder, out: Any) -> tuple[Val, Val]:
    return b.full(tuple(out[0].shape), 0, out[0].dtype), b.full(tuple(out[1].shape), 0, torch.int64)


@emitter("aten.kthvalue")
def kthvalue(
    b: Builder, out: Any, x: Val, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Val, Val]:
    if x.ndim == 0:
        return _scalar_result(b, x)
    if x.numel == 0:
        return _empty_pair(b, out)
    rows = dim_last(b, x, dim)
    return _kth(b, rows, dim, b.full(rows.shape[:-1], k - 1, torch.int32), keepdim)


def _median_rank(b: Builder, rows: Val, ignore_nan: bool) -> Val:
    """The rank of each row's median, the lower one: a NaN, unless ignored, if there is one."""
    size, shape = rows.shape[-1], rows.shape[:-1]
    middle = b.full(shape, (size - 1) // 2, torch.int32)
    if not is_float(rows.dtype):
        return middle
    nans = b.reduce_sum(b.convert(b.isnan(rows), torch.int32), [rows.ndim - 1])
    numbers = b.sub(size, nans)
    if ignore_nan:
        return b.max(b.div(b.sub(numbers, 1), 2), 0)
    return b.select(b.gt(nans, 0), numbers, middle)


def _median_dim(
    b: Builder, out: Any, x: Val, dim: int, keepdim: bool, ignore_nan: bool
) -> tuple[Val, Val]:
    if x.ndim == 0:
        return _scalar_result(b, x)
    if x.numel == 0:
        return _empty_pair(b, out)
    rows = dim_last(b, x, dim)
    return _kth(b, rows, dim, _median_rank(b, rows, ignore_nan), keepdim)


@emitter("aten.median.dim")
def median_dim(b: Builder, out: Any, x: Val, dim: int, keepdim: bool = False) -> tuple[Val, Val]:
    return _median_dim(b, out, x, dim, keepdim, ignore_nan=False)


@emitter("aten.nanmedian.dim")
def nanmedian_dim(b: Builder, out: Any, x: Val, dim: int, keepdim: bool = False) -> tuple[Val, Val]:
    return _median_dim(b, out, x, dim, keepdim, ignore_nan=True)


def _median_all(b: Builder, out: Any, x: Val, ignore_nan: bool) -> Val:
    if x.numel == 0:
        return b.full((), float("nan") if is_float(x.dtype) else 0, x.dtype)
    flat = b.reshape(x, (x.numel,))
    return _kth(b, flat, 0, _median_rank(b, flat, ignore_nan), False)[0]


@emitter("aten.median")
def median(b: Builder, out: Any, x: Val) -> Val:
    return _median_all(b, out, x, ignore_nan=False)


@emitter("aten.nanmedian")
def nanmedian(b: Builder, out: Any, x: Val) -> Val:
    return _median_all(b, out, x, ignore_nan=True)


# mode


def run_starts(b: Builder, x: Val) -> Val:
    """Whether an element of the last dimension differs from the one before it; the first does."""
    dim = x.ndim - 1
    size = x.shape[dim]
    first = b.full((*x.shape[:-1], 1), True, torch.bool)
    if size <= 1:
        return b.full(x.shape, True, torch.bool)
    changed = b.ne(b.slice_dim(x, dim, 1, size), b.slice_dim(x, dim, 0, size - 1))
    return b.concat([first, changed], dim)


@emitter("aten.mode")
def mode(b: Builder, out: Any, x: Val, dim: int = -1, keepdim: bool = False) -> tuple[Val, Val]:
    """The smallest of the most frequent values, and the last position that holds it."""
    if x.ndim == 0:
        return _scalar_result(b, x)
    if x.numel == 0:
        return _empty_pair(b, out)
    rows = dim_last(b, x, dim)
    positions = sort_positions(b, rows)
    ordered = take_along_last(b, rows, positions)
    last = rows.ndim - 1
    index = b.iota(rows.shape, last, torch.int32)
    starts = prefix(b, b.select(run_starts(b, ordered), index, 0), last, b.max, 0)
    length = b.sub(index, starts)
    longest = b.reduce_max(length, [last], keepdim=True)
    end = b.reduce_min(
        b.select(b.eq(length, longest), index, rows.shape[last] - 1), [last], keepdim=True
    )
    place = take_along_last(b, positions, end)
    value = take_along_last(b, rows, place)
    if keepdim:
        return dim_back(b, value, dim), dim_back(b, place, dim)
    return b.squeeze(value, -1), b.squeeze(place, -1)
