"""Joining, repeating, reordering and masking of elements; copies and conversions."""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.emitting import finish, operand, shape_of
from torchneuron.lowering.registry import emitter


@emitter("aten._to_copy")
def to_copy(b: Builder, out: Any, x: Val, **_: Any) -> Val:
    return finish(b, x, out)


@emitter("aten.copy")
def copy(b: Builder, out: Any, x: Val, src: Val, non_blocking: bool = False) -> Val:
    return finish(b, src, out)


@emitter("prims.convert_element_type")
def convert_element_type(b: Builder, out: Any, x: Val, dtype: torch.dtype) -> Val:
    return finish(b, x, out)


@emitter("aten.cat", "aten.concat", "aten.concatenate")
def cat(b: Builder, out: Any, tensors: list[Val], dim: int = 0) -> Val:
    # By old custom an empty vector joins anything.
    parts = [b.convert(x, out.dtype) for x in tensors if x.shape != (0,) or out.dim() == 1]
    return b.concat(parts, dim) if parts else b.full(shape_of(out), 0, out.dtype)


@emitter("aten.stack")
def stack(b: Builder, out: Any, tensors: list[Val], dim: int = 0) -> Val:
    dim %= out.dim()
    return b.concat([b.unsqueeze(b.convert(x, out.dtype), dim) for x in tensors], dim)


@emitter("aten.repeat", "aten.tile")
def repeat(b: Builder, out: Any, x: Val, repeats: list[int]) -> Val:
    counts = [1] * (x.ndim - len(repeats)) + list(repeats)
    sizes = [1] * (len(counts) - x.ndim) + list(x.shape)
    grid: list[int] = []
    dims: list[int] = []
    for count, size in zip(counts, sizes, strict=True):
        grid += [count, size]
        dims.append(len(grid) - 1)
    return b.reshape(b.broadcast_in_dim(b.reshape(x, sizes), grid, dims), shape_of(out))


@emitter("aten.flip")
def flip(b: Builder, out: Any, x: Val, dims: list[int]) -> Val:
    return b.reverse(x, sorted({dim % x.ndim for dim in dims})) if x.ndim else x


def roll_dim(b: Builder, x: Val, shift: int, dim: int) -> Val:
    """``x`` with its elements moved ``shift`` places on along ``dim``, the last to the front."""
    size = x.shape[dim]
    if size == 0 or shift % size == 0:
        return x
    cut = size - shift % size
    return b.concat([b.slice_dim(x, dim, cut, size), b.slice_dim(x, dim, 0, cut)], dim)


@emitter("aten.roll")
def roll(b: Builder, out: Any, x: Val, shifts: list[int], dims: list[int] = []) -> Val:  # noqa: B006
    if not dims:
        return b.reshape(roll_dim(b, b.reshape(x, (x.numel,)), shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = roll_dim(b, x, shift, dim % x.ndim)
    return x


@emitter("aten.constant_pad_nd")
def constant_pad_nd(b: Builder, out: Any, x: Val, pad: list[int], value: Val | Number = 0) -> Val:
    low, high = [0] * x.ndim, [0] * x.ndim
    for index in range(len(pad) // 2):
        low[x.ndim - 1 - index], high[x.ndim - 1 - index] = pad[2 * index], pad[2 * index + 1]
    return b.pad(x, low, high, None, operand(b, value, x.dtype))


# Triangles


def _triangle(b: Builder, x: Val, diagonal: int, lower: bool) -> Val:
    matrix = x.shape[-2:]
    row = b.add(b.iota(matrix, 0, torch.int32), diagonal)
    column = b.iota(matrix, 1, torch.int32)
    kept = b.ge(row, column) if lower else b.le(row, column)
    mask = b.broadcast_to(kept, x.shape)
    return b.select(mask, x, b.full(x.shape, 0, x.dtype))


@emitter("aten.tril")
def tril(b: Builder, out: Any, x: Val, diagonal: int = 0) -> Val:
    return _triangle(b, x, diagonal, lower=True)


@emitter("aten.triu")
def triu(b: Builder, out: Any, x: Val, diagonal: int = 0) -> Val:
    return _triangle(b, x, diagonal, lower=False)
