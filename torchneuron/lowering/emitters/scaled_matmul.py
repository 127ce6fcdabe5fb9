"""Products of quantised matrices, and of groups of rows with a matrix each."""

from typing import Any

import torch
from torch import Tensor

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitting import shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter, shape_rule

# Rows that are multiplied together: a group's last tile may be that much too long.
_TILE = 128
_GROUPED_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def _scale(b: Builder, scale: Val, shape: tuple[int, int], op: str) -> Val:
    """One factor for all, or one for each row or column."""
    if scale.numel == 1:
        return b.scalar(scale, torch.float32)
    if scale.ndim == 2 and scale.shape in ((shape[0], 1), (1, shape[1])):
        return b.convert(scale, torch.float32)
    raise LoweringError(op, f"scales of shape {scale.shape} for a result of shape {shape}")


@emitter("aten._scaled_mm")
def scaled_mm(
    b: Builder,
    out: Any,
    x: Val,
    y: Val,
    scale_a: Val,
    scale_b: Val,
    bias: Val | None = None,
    scale_result: Val | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Val:
    shape = (x.shape[0], y.shape[1])
    product = b.matmul(b.convert(x, torch.float32), b.convert(y, torch.float32))
    for scale in (scale_a, scale_b):
        product = b.mul(product, _scale(b, scale, shape, "aten._scaled_mm"))
    if bias is not None:
        product = b.add(product, b.convert(bias, torch.float32))
    if scale_result is not None and out.dtype.itemsize == 1:
        product = b.mul(product, b.scalar(scale_result, torch.float32))
    return b.convert(product, out.dtype)


@emitter("aten._weight_int8pack_mm")
def weight_int8pack_mm(b: Builder, out: Any, x: Val, weight: Val, scales: Val) -> Val:
    """``x`` (m, k) times the transpose of int8 ``weight`` (n, k), whose rows have ``scales`` (n,)."""
    wide = b.transpose(b.convert(weight, torch.float32), [1, 0])
    product = b.matmul(b.convert(x, torch.float32), wide)
    return b.convert(b.mul(product, b.convert(scales, torch.float32)), out.dtype)


# Groups


class _Tiles:
    """The groups' extents along one dimension of ``size``, cut into tiles.

    Tile t of ``count`` belongs to one group; tiles beyond the last group's are empty.
    """

    def __init__(self, b: Builder, ends: Val, size: int):
        self.width = min(_TILE, size)
        self.count = size // self.width + ends.numel
        groups = ends.numel
        self._ends = b.convert(ends, torch.int64)
        self._starts = b.concat(
            [b.full((1,), 0, torch.int64), b.slice_dim(self._ends, 0, 0, groups - 1)], 0
        )
        tiles = b.div(b.add(b.sub(self._ends, self._starts), self.width - 1), self.width)
        earlier = b.le(b.iota((groups, groups), 1), b.iota((groups, groups), 0))
        self._cumulative = b.reduce_sum(b.select(earlier, tiles, 0), [1])
        self._first = b.sub(self._cumulative, tiles)

    def state(self) -> list[Val]:
        """What a loop has to carry for ``locate``."""
        return [self._ends, self._starts, self._cumulative, self._first]

    def locate(self, b: Builder, t: Val, state: list[Val]) -> tuple[Val, Val, Val]:
        """(group, start, mask) of tile ``t``: its group, its first position, and which of its positions count."""
        ends, starts, cumulative, first = state
        passed = b.convert(b.le(cumulative, t), torch.int64)
        number = b.reduce_sum(passed)
        group = b.min(number, ends.numel - 1)
        here = [
            b.reshape(b.dynamic_slice(values, [group], [1]), ()) for values in (ends, starts, first)
        ]
        start = b.add(here[1], b.mul(b.sub(t, here[2]), self.width))
        inside = b.lt(b.add(start, b.iota((self.width,), 0)), here[0])
        return group, start, b.and_(inside, b.lt(number, ends.numel))


def _grouped_rows(b: Builder, x: Val, weights: Val, ends: Val, dtype: torch.dtype) -> Val:
    """Rows of ``x`` (m, k) times the matrix of their group in ``weights`` (g, k, n); (m, n) of ``dtype``."""
    rows, depth = x.shape
    columns = weights.shape[2]
    tiles = _Tiles(b, ends, rows)
    # The last tile may reach over the end.
    padded = b.pad(x, [0, 0], [tiles.width, 0])

    def step(t: Val, result: Val, x: Val, weights: Val, *state: Val) -> list[Val]:
        group, start, mask = tiles.locate(b, t, list(state))
        some = b.dynamic_slice(x, [start, 0], [tiles.width, depth])
        matrix = b.reshape(
            b.dynamic_slice(weights, [group, 0, 0], [1, depth, columns]), (depth, columns)
        )
        product = b.convert(b.matmul(some, matrix), dtype)
        old = b.dynamic_slice(result, [start, 0], [tiles.width, columns])
        kept = b.select(b.reshape(mask, (tiles.width, 1)), product, old)
        return [b.dynamic_update_slice(result, kept, [start, 0]), x, weights, *state]

    zeros = b.full((rows + tiles.width, columns), 0, dtype)
    result = b.for_(tiles.count, [zeros, padded, weights, *tiles.state()], step)[0]
    return b.slice_dim(result, 0, 0, rows)


def _grouped_depth(b: Builder, x: Val, y: Val, ends: Val) -> Val:
    """Products of column groups of ``x`` (m, k) and row groups of ``y`` (k, n): (g, m, n) float32."""
    (rows, depth), columns = x.shape, y.shape[1]
    tiles = _Tiles(b, ends, depth)
    left, right = b.pad(x, [0, 0], [0, tiles.width]), b.pad(y, [0, 0], [tiles.width, 0])

    def step(t: Val, result: Val, x: Val, y: Val, *state: Val) -> list[Val]:
        group, start, mask = tiles.locate(b, t, list(state))
        some_x = b.dynamic_slice(x, [0, start], [rows, tiles.width])
        some_y = b.dynamic_slice(y, [start, 0], [tiles.width, columns])
        # Both sides, because zero times an infinite neighbour is NaN.
        some_x = b.select(b.reshape(mask, (1, tiles.width)), some_x, 0)
        some_y = b.select(b.reshape(mask, (tiles.width, 1)), some_y, 0)
        product = b.reshape(b.convert(b.matmul(some_x, some_y), torch.float32), (1, rows, columns))
        old = b.dynamic_slice(result, [group, 0, 0], product.shape)
        return [b.dynamic_update_slice(result, b.add(old, product), [group, 0, 0]), x, y, *state]

    zeros = b.full((ends.numel, rows, columns), 0, torch.float32)
    return b.for_(tiles.count, [zeros, left, right, *tiles.state()], step)[0]


# PyTorch's own rule is for CUDA: bfloat16 only, and rows that begin at multiples of 16 bytes.
@shape_rule("aten._grouped_mm")
def _grouped_shape(
    x: Tensor,
    y: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    if x.dtype != y.dtype or x.dtype not in _GROUPED_DTYPES:
        raise RuntimeError(
            f"Expected inputs of BF16, FP32 or FP16 type but got mat_a.dtype={x.dtype} and mat_b.dtype={y.dtype}."
        )
    if x.dim() not in (2, 3) or y.dim() not in (2, 3):
        raise RuntimeError(f"operands must be 2D or 3D, not {x.dim()}D and {y.dim()}D")
    if (x.dim() == 2 or y.dim() == 2) != (offs is not None):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, and only then")
    if offs is not None and (offs.dtype != torch.int32 or offs.dim() != 1):
        raise RuntimeError(f"Offsets must be a 1D int32 tensor, not {offs.dim()}D {offs.dtype}")
    if (x.dim() == 3 or y.dim() == 3) and x.shape[-1] != y.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    grouped: tuple[int, ...] = ()
    if x.dim() == y.dim():
        grouped = tuple((x if offs is None else offs).shape[:1])
    return x.new_empty((*grouped, x.shape[-2], y.shape[-1]), dtype=out_dtype or x.dtype)


@emitter("aten._grouped_mm")
def grouped_mm(
    b: Builder,
    out: Any,
    x: Val,
    y: Val,
    offs: Val | None = None,
    bias: Val | None = None,
    out_dtype: torch.dtype | None = None,
) -> Val:
    if bias is not None:
        raise LoweringError("aten._grouped_mm", "PyTorch takes no bias")
    if out.numel() == 0 or x.numel == 0 or y.numel == 0:
        return b.full(shape_of(out), 0, out.dtype)
    if offs is None:
        return b.convert(b.matmul(x, y), out.dtype)
    if x.ndim == 2 and y.ndim == 3:
        return _grouped_rows(b, x, y, offs, out.dtype)
    if x.ndim == 3 and y.ndim == 2:
        turned = _grouped_rows(
            b, b.transpose(y, [1, 0]), b.transpose(x, [0, 2, 1]), offs, out.dtype
        )
        return b.transpose(turned, [1, 0])
    if x.ndim == 2 and y.ndim == 2:
        return b.convert(_grouped_depth(b, x, y, offs), out.dtype)
    raise LoweringError(
        "aten._grouped_mm", f"offsets with operands of {x.ndim} and {y.ndim} dimensions"
    )
