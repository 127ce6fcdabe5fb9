"""Prefix sums and their kin: cumsum, cumprod, cummax, cummin, logcumsumexp.

XLA runs a `reduce_window` over n elements in O(n^2) and a loop over n in n steps, so a scan is built of blocks: each
block of a few elements is scanned by a masked reduction, which vectorises, and the blocks' totals are scanned likewise.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import highest, is_complex, lowest, opmath
from torchneuron.lowering.emitting import finish
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter

Combine = Callable[[Val, Val], Val]

# Elements of a block by level. A block costs its length squared, a level three kernels: small blocks where there are
# many elements (1 M floats take 2.4 ms so, 4 ms with 16 first), large ones where few are left.
_BLOCKS = (8, 16, 32, 64)


def prefix(b: Builder, x: Val, dim: int, combine: Combine, identity: Number) -> Val:
    """Inclusive scan of ``x`` along ``dim`` with an associative ``combine``, which has the given identity."""
    if x.ndim == 0 or x.numel == 0:
        return x
    dim %= x.ndim
    outer, size, inner = prod(x.shape[:dim]), x.shape[dim], prod(x.shape[dim + 1 :])
    rows = b.reshape(x, (outer, size, inner))
    return b.reshape(_scan(b, rows, combine, identity, 0), x.shape)


def prefix_sum(b: Builder, x: Val, dim: int = 0) -> Val:
    """``cumsum`` in the dtype of ``x``."""
    return prefix(b, x, dim, b.add, 0)


def counter_dtype(count: int) -> torch.dtype:
    """The cheapest integer that counts so many elements."""
    return torch.int32 if count < 1 << 31 else torch.int64


def _scan(b: Builder, x: Val, combine: Combine, identity: Number, level: int) -> Val:
    """Inclusive scan of (outer, size, inner) along its middle."""
    outer, size, inner = x.shape
    block = _BLOCKS[min(level, len(_BLOCKS) - 1)]
    if size <= 2 * block:
        return b.reshape(_within_blocks(b, x, combine, identity), x.shape)
    count = -(-size // block)
    padded = b.pad(x, [0, 0, 0], [0, count * block - size, 0], value=identity)
    local = _within_blocks(b, b.reshape(padded, (outer * count, block, inner)), combine, identity)
    totals = b.reshape(b.slice_dim(local, 1, block - 1, block), (outer, count, inner))
    totals = _scan(b, totals, combine, identity, level + 1)
    carry = b.pad(totals, [0, 1, 0], [0, -1, 0], value=identity)
    result = combine(*b.together(b.reshape(carry, (outer * count, 1, inner)), local))
    return b.slice_dim(b.reshape(result, (outer, count * block, inner)), 1, 0, size)


def _within_blocks(b: Builder, x: Val, combine: Combine, identity: Number) -> Val:
    """Inclusive scan of (blocks, block, inner) along its middle: element j combines all k <= j."""
    blocks, block, inner = x.shape
    # Without a last dimension of size 1 XLA vectorises along the block.
    rest = (inner,) if inner > 1 else ()
    shape = (blocks, block, block, *rest)
    kept = (0, 1, 3)[: 2 + len(rest)]
    flat = b.reshape(x, (blocks, block, *rest))
    spread = b.broadcast_in_dim(flat, shape, kept)
    earlier = b.le(b.iota(shape, 1, torch.int32), b.iota(shape, 2, torch.int32))
    masked = b.select(earlier, spread, identity)
    return b.reshape(b.reduce([masked], [identity], [1], combine)[0], x.shape)


@emitter("aten.cumsum")
def cumsum(b: Builder, out: Any, x: Val, dim: int, dtype: torch.dtype | None = None) -> Val:
    value = b.convert(b.convert(x, out.dtype), opmath(out.dtype))
    return finish(b, prefix_sum(b, value, dim), out)


@emitter("aten.cumprod")
def cumprod(b: Builder, out: Any, x: Val, dim: int, dtype: torch.dtype | None = None) -> Val:
    value = b.convert(b.convert(x, out.dtype), opmath(out.dtype))
    return finish(b, prefix(b, value, dim, b.mul, 1), out)


def _running_extremum(
    b: Builder, x: Val, dim: int, combine: Combine, identity: Number
) -> tuple[Val, Val]:
    """The extremum so far and where it was last met; a NaN stays, and the last one counts."""
    if x.ndim == 0 or x.numel == 0:
        return x, b.full(x.shape, 0, torch.int64)
    values = prefix(b, x, dim, combine, identity)
    index = b.iota(x.shape, dim % x.ndim, torch.int32)
    met = b.or_(b.eq(x, values), b.isnan(x))
    places = prefix(b, b.select(met, index, 0), dim, b.max, 0)
    return values, b.convert(places, torch.int64)


# PyTorch's composite kernels of cummax and cummin call the helpers, which write to two outputs.
@emitter("aten.cummax")
def cummax(b: Builder, out: Any, x: Val, dim: int) -> tuple[Val, Val]:
    return _running_extremum(b, x, dim, b.max, lowest(x.dtype))


@emitter("aten.cummin")
def cummin(b: Builder, out: Any, x: Val, dim: int) -> tuple[Val, Val]:
    return _running_extremum(b, x, dim, b.min, highest(x.dtype))


@emitter("aten.logcumsumexp")
def logcumsumexp(b: Builder, out: Any, x: Val, dim: int) -> Val:
    if is_complex(x.dtype):
        raise LoweringError("aten.logcumsumexp", "complex numbers")

    def log_of_sum(left: Val, right: Val) -> Val:
        larger = b.max(left, right)
        tail = b.log1p(b.exp(b.neg(b.abs(b.sub(left, right)))))
        # The difference of equal infinities is NaN.
        same = b.and_(b.eq(left, right), b.not_(b.isfinite(left)))
        return b.select(same, left, b.add(larger, tail))

    value = b.convert(x, opmath(x.dtype))
    return finish(b, prefix(b, value, dim, log_of_sum, float("-inf")), out)
