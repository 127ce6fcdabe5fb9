"""Views of flat storages: ``read`` gives the tensor a view shows, ``write`` the storage after an
assignment to it.

A view is sizes and strides, counted in its own dtype, from an offset. Strides that nest (each is at
least the extent of all smaller ones, as for every view that slicing, transposing and expanding
make) turn into reshape, slice, transpose and broadcast; only overlapping ones, such as those of
``unfold``, need a gather or scatter.
"""

import math
from dataclasses import dataclass

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.spec import TensorInput

# A write at a moving offset updates run by run up to so many runs; beyond, in a loop if the view is
# sparse.
_UNROLLED_RUNS = 8
# A loop step costs about as much as copying so many elements.
_LOOP_STEP_ELEMENTS = 128


@dataclass(frozen=True)
class _Dim:
    """One dimension with size > 1 and stride > 0; ``axis`` is its place in the view."""

    axis: int
    size: int
    stride: int


def _dims(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[_Dim]:
    """The dimensions that move through memory, outermost first."""
    dims = [
        _Dim(axis, size, stride)
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True))
    ]
    return sorted(
        (dim for dim in dims if dim.size > 1 and dim.stride > 0),
        key=lambda dim: (-dim.stride, dim.axis),
    )


def _extent(dims: list[_Dim]) -> int:
    """Elements from the first to the last that the dimensions reach."""
    return 1 + sum((dim.size - 1) * dim.stride for dim in dims)


def _nested(dims: list[_Dim]) -> bool:
    return all(dim.stride >= _extent(dims[i + 1 :]) for i, dim in enumerate(dims))


def _resize_last(b: Builder, x: Val, length: int) -> Val:
    """Cut or pad the last dimension to ``length``."""
    if length <= x.shape[-1]:
        return b.slice_dim(x, x.ndim - 1, 0, length)
    return b.pad(x, [0] * x.ndim, [0] * (x.ndim - 1) + [length - x.shape[-1]])


def dense_to_flat(b: Builder, value: Val, strides: tuple[int, ...]) -> Val:
    """The flat memory of a dense tensor with these strides."""
    if value.numel == 0:
        return b.full((0,), 0, value.dtype)
    order = [dim.axis for dim in _dims(value.shape, strides)]
    order += [axis for axis in range(value.ndim) if axis not in order]
    return b.reshape(b.transpose(value, order), (value.numel,))


# Reading


def read(b: Builder, flat: Val, spec: TensorInput, offset: Val | None = None) -> Val:
    """The tensor of ``spec.sizes`` that the view shows of the storage ``flat`` (N,); ``offset`` is
    a 0-d i64.
    """
    if spec.numel == 0:
        return b.full(spec.sizes, 0, spec.dtype)
    dims = _dims(spec.sizes, spec.strides)
    memory = _window(b, flat, spec.dtype, _extent(dims), offset)
    packed = _unpack(b, memory, dims) if _nested(dims) else _gather(b, memory, dims)
    by_axis = sorted(range(len(dims)), key=lambda i: dims[i].axis)
    return b.broadcast_in_dim(
        b.transpose(packed, by_axis), spec.sizes, sorted(dim.axis for dim in dims)
    )


def _window(b: Builder, flat: Val, dtype: torch.dtype, extent: int, offset: Val | None) -> Val:
    """At least ``extent`` elements of ``dtype`` from ``offset``: all of the storage's rest where
    that is known.
    """
    if flat.dtype is not dtype:
        wider = _ratio(dtype, flat.dtype)
        if wider > 1:
            start = None if offset is None else b.mul(offset, wider)
            if start is None:
                memory = _resize_last(b, flat, flat.numel // wider * wider)
            else:
                memory = b.dynamic_slice(flat, [start], [extent * wider])
            return b.reinterpret(memory, dtype)
        flat = b.reinterpret(flat, dtype)
    return flat if offset is None else b.dynamic_slice(flat, [offset], [extent])


def _ratio(dtype: torch.dtype, storage: torch.dtype) -> int:
    """How many storage elements one element of ``dtype`` covers, at least 1."""
    return max(1, dtype.itemsize // storage.itemsize)


def _unpack(b: Builder, memory: Val, dims: list[_Dim]) -> Val:
    """Nested dimensions of ``memory`` (L,), outermost first."""
    if _extent(dims) == math.prod(dim.size for dim in dims):
        return b.reshape(_resize_last(b, memory, _extent(dims)), [dim.size for dim in dims])
    shape: list[int] = []
    for dim, rest in zip(dims, (dims[i + 1 :] for i in range(len(dims))), strict=True):
        last = len(shape)
        if not rest:
            return b.slice_dim(memory, last, 0, (dim.size - 1) * dim.stride + 1, dim.stride)
        memory = _resize_last(b, memory, dim.size * dim.stride)
        shape.append(dim.size)
        memory = b.slice_dim(b.reshape(memory, (*shape, dim.stride)), last + 1, 0, _extent(rest))
    return b.reshape(_resize_last(b, memory, 1), shape)


def _linear_indices(b: Builder, dims: list[_Dim]) -> Val:
    """Position of each element relative to the view's first, in the shape of ``dims``."""
    shape = [dim.size for dim in dims]
    indices = b.full(shape, 0, torch.int64)
    for axis, dim in enumerate(dims):
        indices = b.add(indices, b.mul(b.iota(shape, axis), dim.stride))
    return indices


def _gather(b: Builder, memory: Val, dims: list[_Dim]) -> Val:
    return b.take(memory, _linear_indices(b, dims))


# Writing


def write(b: Builder, flat: Val, value: Val, spec: TensorInput, offset: Val | None = None) -> Val:
    """The storage ``flat`` (N,) after ``value``, of the view's sizes and dtype, is assigned to the
    view.

    Where several elements of ``value`` go to one place the last one in row-major order stays.
    """
    if spec.numel == 0:
        return flat
    value = _last_of_expanded(b, value, spec)
    dims = _dims(spec.sizes, spec.strides)
    if flat.dtype is not spec.dtype:
        return _write_other_dtype(b, flat, value, spec, dims, offset)
    return _write_dims(b, flat, value, dims, offset)


def _last_of_expanded(b: Builder, value: Val, spec: TensorInput) -> Val:
    """``value`` with only the last index of each expanded (stride 0) dimension."""
    for axis, (size, stride) in enumerate(zip(spec.sizes, spec.strides, strict=True)):
        if stride == 0 and size > 1:
            value = b.slice_dim(value, axis, size - 1, size)
    return value


def _write_other_dtype(
    b: Builder, flat: Val, value: Val, spec: TensorInput, dims: list[_Dim], offset: Val | None
) -> Val:
    wider = _ratio(spec.dtype, flat.dtype)
    if wider == 1:
        whole = _write_dims(b, b.reinterpret(flat, spec.dtype), value, dims, offset)
        return b.reinterpret(whole, flat.dtype)
    start = b.full((), 0, torch.int64) if offset is None else b.mul(offset, wider)
    region = b.dynamic_slice(flat, [start], [_extent(dims) * wider])
    written = _write_dims(b, b.reinterpret(region, spec.dtype), value, dims, None)
    return b.dynamic_update_slice(flat, b.reinterpret(written, flat.dtype), [start])


def _write_dims(b: Builder, flat: Val, value: Val, dims: list[_Dim], offset: Val | None) -> Val:
    """Write ``value``, whose other dimensions have size 1, through ``dims``."""
    order = [dim.axis for dim in dims]
    packed = b.reshape(
        b.transpose(value, order + [axis for axis in range(value.ndim) if axis not in order]),
        [dim.size for dim in dims],
    )
    if not _nested(dims):
        return _scatter(b, flat, packed, dims, offset)
    if offset is None:
        return _pack(b, flat, packed, dims)
    extent = _extent(dims)
    if extent == packed.numel:
        return b.dynamic_update_slice(flat, b.reshape(packed, (extent,)), [offset])
    run_dims = _run(dims)
    outer = dims[: len(dims) - len(run_dims)]
    runs = math.prod(dim.size for dim in outer)
    if runs <= _UNROLLED_RUNS:
        return _write_unrolled(b, flat, packed, outer, offset)
    if runs * _LOOP_STEP_ELEMENTS < extent:
        return _write_looped(b, flat, packed, outer, offset)
    block = b.dynamic_slice(flat, [offset], [extent])
    return b.dynamic_update_slice(flat, _pack(b, block, packed, dims), [offset])


def _run(dims: list[_Dim]) -> list[_Dim]:
    """The innermost dimensions that together are contiguous."""
    length = 1
    run: list[_Dim] = []
    for dim in reversed(dims):
        if dim.stride != length:
            break
        length *= dim.size
        run.insert(0, dim)
    return run


def _pack(b: Builder, memory: Val, value: Val, dims: list[_Dim]) -> Val:
    """``memory`` (..., L) with ``value`` (..., sizes of nested dims) from each row's start."""
    lead = memory.shape[:-1]
    length = memory.shape[-1]
    if _extent(dims) == math.prod(dim.size for dim in dims):
        return b.dynamic_update_slice(
            memory, b.reshape(value, (*lead, _extent(dims))), [0] * memory.ndim
        )
    dim, rest = dims[0], dims[1:]
    # Whole rows of the storage, so that the update is one block of a reshaped view and can happen
    # in place.
    rows = length // dim.stride if length % dim.stride == 0 else dim.size
    grid = b.reshape(_resize_last(b, memory, rows * dim.stride), (*lead, rows, dim.stride))
    zeros = [0] * grid.ndim
    if math.prod(d.size for d in rest) == _extent(rest):
        block = b.reshape(value, (*lead, dim.size, _extent(rest)))
    else:
        block = _pack(b, b.slice_dim(grid, len(lead), 0, dim.size), value, rest)
    row = b.reshape(b.dynamic_update_slice(grid, block, zeros), (*lead, rows * dim.stride))
    if row.shape[-1] < length:
        return b.dynamic_update_slice(memory, row, [0] * memory.ndim)
    return b.slice_dim(row, len(lead), 0, length)


def _write_unrolled(b: Builder, flat: Val, packed: Val, outer: list[_Dim], offset: Val) -> Val:
    sizes = [dim.size for dim in outer]
    rows = b.reshape(packed, (math.prod(sizes), -(-packed.numel // math.prod(sizes))))
    for row in range(rows.shape[0]):
        start, rest = 0, row
        for dim in reversed(outer):
            start += rest % dim.size * dim.stride
            rest //= dim.size
        run = b.reshape(b.slice_dim(rows, 0, row, row + 1), (rows.shape[1],))
        flat = b.dynamic_update_slice(flat, run, [b.add(offset, start)])
    return flat


def _write_looped(b: Builder, flat: Val, packed: Val, outer: list[_Dim], offset: Val) -> Val:
    runs = math.prod(dim.size for dim in outer)
    rows = b.reshape(packed, (runs, packed.numel // runs))

    def step(i: Val, memory: Val, source: Val, start: Val) -> list[Val]:
        run = b.reshape(b.dynamic_slice(source, [i, 0], [1, source.shape[1]]), (source.shape[1],))
        position, rest = start, i
        for dim in reversed(outer):
            position = b.add(position, b.mul(b.rem(rest, dim.size), dim.stride))
            rest = b.div(rest, dim.size)
        return [b.dynamic_update_slice(memory, run, [position]), source, start]

    return b.for_(runs, [flat, rows, offset], step)[0]


def _scatter(b: Builder, flat: Val, packed: Val, dims: list[_Dim], offset: Val | None) -> Val:
    # In the order of the view's axes, so that the last writer is the one PyTorch's loop would
    # leave.
    by_axis = sorted(range(len(dims)), key=lambda i: dims[i].axis)
    indices = b.transpose(_linear_indices(b, dims), by_axis)
    if offset is not None:
        indices = b.add(indices, offset)
    return b.scatter(
        [flat],
        b.reshape(indices, (packed.numel, 1)),
        [b.reshape(b.transpose(packed, by_axis), (packed.numel,))],
        lambda _old, new: new,
        window_dims=[],
        inserted=[0],
        index_map=[0],
        index_vector_dim=1,
    )[0]
