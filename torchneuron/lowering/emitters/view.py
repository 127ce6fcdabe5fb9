"""Views: other sizes and strides over the same elements. Inside a program they are plain values."""

import math
from typing import Any

import torch

from torchneuron.lowering import views
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter
from torchneuron.lowering.spec import TensorInput


@emitter(
    "aten.view",
    "aten.view_copy",
    "aten.reshape",
    "aten._unsafe_view",
    "aten._reshape_alias",
    "aten._reshape_alias_copy",
    "aten._reshape_copy",
    "aten.unsqueeze",
    "aten.unsqueeze_copy",
    *(
        f"aten.{name}{kind}"
        for name in ("squeeze", "squeeze_copy")
        for kind in ("", ".dim", ".dims")
    ),
)
def reshape(b: Builder, out: Any, x: Val, *_: Any) -> Val:
    return b.reshape(x, shape_of(out))


@emitter(
    "aten.alias",
    "aten.alias_copy",
    "aten.detach",
    "aten.detach_copy",
    "aten.lift",
    "aten.lift_fresh",
    "aten.lift_fresh_copy",
    "aten.contiguous",
    "aten.clone",
    "aten.resolve_conj",
    "aten.resolve_neg",
)
def identity(b: Builder, out: Any, x: Val, **_: Any) -> Val:
    return x


@emitter("aten.expand", "aten.expand_copy")
def expand(b: Builder, out: Any, x: Val, size: list[int], **_: Any) -> Val:
    return b.broadcast_to(x, shape_of(out))


@emitter("aten.permute", "aten.permute_copy")
def permute(b: Builder, out: Any, x: Val, dims: list[int]) -> Val:
    return b.transpose(x, [dim % x.ndim for dim in dims])


def swap(b: Builder, x: Val, dim0: int, dim1: int) -> Val:
    """``x`` with two dimensions exchanged."""
    if x.ndim == 0:
        return x
    order = list(range(x.ndim))
    dim0, dim1 = dim0 % x.ndim, dim1 % x.ndim
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return b.transpose(x, order)


@emitter("aten.transpose.int", "aten.transpose_copy.int")
def transpose(b: Builder, out: Any, x: Val, dim0: int, dim1: int) -> Val:
    return swap(b, x, dim0, dim1)


@emitter("aten.t", "aten.t_copy")
def t(b: Builder, out: Any, x: Val) -> Val:
    return swap(b, x, 0, 1) if x.ndim == 2 else x


# Parts


def slice_bounds(size: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """First index and one past the last, within 0..size, as PyTorch clamps them."""
    first, last, _ = slice(start, end, step).indices(size)
    return first, max(first, last)


@emitter("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    b: Builder,
    out: Any,
    x: Val,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Val:
    dim %= x.ndim
    first, last = slice_bounds(x.shape[dim], start, end, step)
    return b.slice_dim(x, dim, first, last, step)


def select_index(b: Builder, x: Val, dim: int, index: int) -> Val:
    """``x`` at ``index`` of ``dim``, which vanishes."""
    dim %= x.ndim
    index %= x.shape[dim]
    return b.squeeze(b.slice_dim(x, dim, index, index + 1), dim)


@emitter("aten.select.int", "aten.select_copy.int")
def select(b: Builder, out: Any, x: Val, dim: int, index: int) -> Val:
    return select_index(b, x, dim, index)


@emitter("aten.narrow_copy")
def narrow_copy(b: Builder, out: Any, x: Val, dim: int, start: int, length: int) -> Val:
    dim %= x.ndim
    start = start % x.shape[dim] if start < 0 else start
    return b.slice_dim(x, dim, start, start + length)


def _pieces(b: Builder, x: Val, sizes: list[int], dim: int) -> list[Val]:
    dim %= x.ndim
    pieces, start = [], 0
    for size in sizes:
        pieces.append(b.slice_dim(x, dim, start, start + size))
        start += size
    return pieces


@emitter(
    "aten.split.Tensor",
    "aten.split_copy.Tensor",
    "aten.split_with_sizes",
    "aten.split_with_sizes_copy",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_split_with_sizes",
    "aten.unsafe_chunk",
)
def split(b: Builder, out: Any, x: Val, split_size: Any, dim: int = 0) -> list[Val]:
    return _pieces(b, x, [int(one.shape[dim]) for one in out], dim)


@emitter("aten.unbind.int", "aten.unbind_copy.int")
def unbind(b: Builder, out: Any, x: Val, dim: int = 0) -> list[Val]:
    return [select_index(b, x, dim, index) for index in range(len(out))]


# Diagonals


def _diagonal_bounds(rows: int, columns: int, offset: int) -> tuple[int, int, int]:
    """First row, first column and length of a diagonal."""
    row, column = max(0, -offset), max(0, offset)
    return row, column, max(0, min(rows - row, columns - column))


def _to_the_end(rank: int, dim1: int, dim2: int) -> list[int]:
    return [dim for dim in range(rank) if dim not in (dim1, dim2)] + [dim1, dim2]


@emitter("aten.diagonal", "aten.diagonal_copy")
def diagonal(b: Builder, out: Any, x: Val, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Val:
    matrix = b.transpose(x, _to_the_end(x.ndim, dim1 % x.ndim, dim2 % x.ndim))
    row, column, length = _diagonal_bounds(matrix.shape[-2], matrix.shape[-1], offset)
    lead = matrix.shape[:-2]
    if length == 0:
        return b.full((*lead, 0), 0, x.dtype)
    starts = [*(0 for _ in lead), row, column]
    square = b.slice(matrix, starts, [*lead, row + length, column + length])
    # In memory the diagonal's elements are length + 1 apart.
    line = b.reshape(square, (*lead, length * length))
    step = length + 1
    return b.slice_dim(line, len(lead), 0, (length - 1) * step + 1, step)


def put_diagonal(b: Builder, x: Val, source: Val, offset: int, dim1: int, dim2: int) -> Val:
    """``x`` with a diagonal of dims ``dim1``, ``dim2`` replaced by ``source`` (..., length)."""
    order = _to_the_end(x.ndim, dim1 % x.ndim, dim2 % x.ndim)
    matrix = b.transpose(x, order)
    rows, columns = matrix.shape[-2:]
    row, _, length = _diagonal_bounds(rows, columns, offset)
    rank = matrix.ndim
    quiet = [0] * (rank - 2)
    by_row = b.pad(source, [*quiet, row], [*quiet, rows - row - length])
    spread = b.broadcast_in_dim(by_row, matrix.shape, range(rank - 1))
    index = b.add(b.iota((rows, columns), 0, torch.int32), offset)
    on_diagonal = b.eq(index, b.iota((rows, columns), 1, torch.int32))
    written = b.select(on_diagonal, spread, matrix)
    return b.transpose(written, [order.index(dim) for dim in range(rank)])


@emitter("aten.diagonal_scatter")
def diagonal_scatter(
    b: Builder, out: Any, x: Val, src: Val, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Val:
    return put_diagonal(b, x, b.convert(src, x.dtype), offset, dim1, dim2)


@emitter("aten.diag_embed")
def diag_embed(
    b: Builder, out: Any, x: Val, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Val:
    return put_diagonal(b, b.full(shape_of(out), 0, x.dtype), x, offset, dim1, dim2)


# Windows


@emitter("aten.unfold", "aten.unfold_copy")
def unfold(b: Builder, out: Any, x: Val, dimension: int, size: int, step: int) -> Val:
    if x.ndim == 0:
        return b.slice_dim(b.reshape(x, (1,)), 0, 0, size)
    dim = dimension % x.ndim
    count = shape_of(out)[dim]
    if out.numel() == 0:
        return b.full(shape_of(out), 0, x.dtype)
    if step >= size:
        # The windows do not overlap: rows of a matrix.
        padded = b.pad(
            x,
            [0] * x.ndim,
            [count * step - length if axis == dim else 0 for axis, length in enumerate(x.shape)],
        )
        rows = b.reshape(padded, (*x.shape[:dim], count, step, *x.shape[dim + 1 :]))
        windows = b.slice_dim(rows, dim + 1, 0, size)
    else:
        start = b.mul(b.iota((count, size), 0), step)
        windows = b.take(x, b.add(start, b.iota((count, size), 1)), dim)
    order = [axis for axis in range(windows.ndim) if axis != dim + 1]
    return b.transpose(windows, [*order, dim + 1])


# Scatters: the functional forms of writing to a view


@emitter("aten.select_scatter")
def select_scatter(b: Builder, out: Any, x: Val, src: Val, dim: int, index: int) -> Val:
    dim %= x.ndim
    starts = [0] * x.ndim
    starts[dim] = index % x.shape[dim]
    return b.dynamic_update_slice(x, b.unsqueeze(b.convert(src, x.dtype), dim), starts)


@emitter("aten.slice_scatter")
def slice_scatter(
    b: Builder,
    out: Any,
    x: Val,
    src: Val,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Val:
    dim %= x.ndim
    size = x.shape[dim]
    first, last = slice_bounds(size, start, end, step)
    count = -(-(last - first) // step)
    part = [count if axis == dim else length for axis, length in enumerate(x.shape)]
    source = b.broadcast_to(b.convert(src, x.dtype), part)
    if step == 1 or count <= 1:
        starts = [0] * x.ndim
        starts[dim] = first
        return b.dynamic_update_slice(x, source, starts)
    low, high, inner = [0] * x.ndim, [0] * x.ndim, [0] * x.ndim
    low[dim], inner[dim] = first, step - 1
    high[dim] = size - first - ((count - 1) * step + 1)
    index = b.sub(b.iota((size,), 0, torch.int32), first)
    hit = b.all_of(b.ge(index, 0), b.lt(index, last - first), b.eq(b.rem(index, step), 0))
    mask = b.broadcast_in_dim(hit, x.shape, [dim])
    return b.select(mask, b.pad(source, low, high, inner), x)


# Strides over memory


def _memory(b: Builder, x: Val, strides: tuple[int, ...]) -> Val:
    """The storage of a dense value whose meta tensor has these strides."""
    layout = torch.empty_strided(x.shape, strides, device="meta")
    if not torch.ops.aten.is_non_overlapping_and_dense(layout):
        raise LoweringError(
            "aten.as_strided", f"of a value with strides {strides}, which does not fill its storage"
        )
    return views.dense_to_flat(b, x, strides)


def _checked_spec(
    b: Builder, flat: Val, size: list[int], stride: list[int], offset: int
) -> tuple[TensorInput, Val | None]:
    spec = TensorInput(0, flat.dtype, tuple(size), tuple(stride), offset != 0)
    extent = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if math.prod(size) and offset + extent > flat.numel:
        raise LoweringError("aten.as_strided", "reaches beyond the value's own elements")
    return spec, b.full((), offset, torch.int64) if offset else None


@emitter("aten.as_strided", "aten.as_strided_copy", layout=True)
def as_strided(
    b: Builder,
    out: Any,
    x: Val,
    size: list[int],
    stride: list[int],
    storage_offset: int | None = None,
    *,
    strides: tuple[int, ...],
) -> Val:
    flat = _memory(b, x, strides)
    spec, offset = _checked_spec(b, flat, size, stride, storage_offset or 0)
    return views.read(b, flat, spec, offset)


@emitter("aten.as_strided_scatter", layout=True)
def as_strided_scatter(
    b: Builder,
    out: Any,
    x: Val,
    src: Val,
    size: list[int],
    stride: list[int],
    storage_offset: int | None = None,
    *,
    strides: tuple[int, ...],
) -> Val:
    flat = _memory(b, x, strides)
    spec, offset = _checked_spec(b, flat, size, stride, storage_offset or 0)
    written = views.write(b, flat, b.convert(src, x.dtype), spec, offset)
    return views.read(b, written, TensorInput(0, x.dtype, x.shape, strides))


# Other dtypes over the same memory


@emitter("aten.view.dtype", "aten.view_copy.dtype")
def view_dtype(b: Builder, out: Any, x: Val, dtype: torch.dtype) -> Val:
    return b.reshape(b.reinterpret(x, dtype), shape_of(out))


@emitter("aten.view_as_real", "aten.view_as_real_copy")
def view_as_real(b: Builder, out: Any, x: Val) -> Val:
    return b.reshape(b.view_as_real_flat(x), shape_of(out))


@emitter("aten.view_as_complex", "aten.view_as_complex_copy")
def view_as_complex(b: Builder, out: Any, x: Val) -> Val:
    return b.reshape(b.view_as_complex_flat(x), shape_of(out))


@emitter("aten.real")
def real(b: Builder, out: Any, x: Val) -> Val:
    return b.real(x)


@emitter("aten.imag")
def imag(b: Builder, out: Any, x: Val) -> Val:
    return b.imag(x)


@emitter("aten._conj", "aten._conj_copy", "aten._conj_physical", "aten.conj_physical", "aten.conj")
def conj(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.conj(x), out)


@emitter("aten._neg_view", "aten._neg_view_copy")
def neg_view(b: Builder, out: Any, x: Val) -> Val:
    return b.neg(x)
