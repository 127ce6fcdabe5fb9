"""Average and maximum pooling with their gradients.

All of it is done one dimension after the other. Forward, a window's elements are strided slices; backward, each input
element looks at the few windows that cover it, so that nothing is scattered and all fuses into one loop.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from torchneuron.lowering import resampling
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import is_float, lowest, opmath
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.registry import emitter

_INDEX = torch.int32

# Beyond these, one windowed reduction or one scatter is better than a long program.
_MAX_SLICES = 16
_MAX_COVERING = 64
_MAX_PHASES = 8


@dataclass(frozen=True)
class _Axis:
    """Windows along one dimension: window o covers ``o * stride - low + t * dilation`` for t < taps."""

    dim: int
    size: int
    count: int
    taps: int
    stride: int
    low: int
    dilation: int = 1

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation + 1

    @property
    def covering(self) -> int:
        """How many windows an element can lie in."""
        return -(-self.reach // self.stride)


def _axes(
    x_shape: Sequence[int],
    counts: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> list[_Axis]:
    rank = len(counts)
    stride = stride or kernel
    full = [tuple(v) * (rank if len(v) == 1 else 1) for v in (kernel, stride, padding, dilation)]
    first = len(x_shape) - rank
    return [
        _Axis(first + i, x_shape[first + i], counts[i], *(values[i] for values in full))
        for i in range(rank)
    ]


def _even_axes(x_shape: Sequence[int], counts: Sequence[int]) -> list[_Axis] | None:
    """The windows of adaptive pooling if all are equal and none overlap."""
    sizes = x_shape[len(x_shape) - len(counts) :]
    if any(count == 0 or size % count for size, count in zip(sizes, counts, strict=True)):
        return None
    kernel = [size // count for size, count in zip(sizes, counts, strict=True)]
    return _axes(x_shape, counts, kernel, kernel, (0,))


def _pad_axis(b: Builder, x: Val, axis: _Axis, value: Any) -> Val:
    """Padded so that the windows, all inside, end where ``x`` ends."""
    low, high = [0] * x.ndim, [0] * x.ndim
    low[axis.dim] = axis.low
    high[axis.dim] = (axis.count - 1) * axis.stride + axis.reach - axis.size - axis.low
    return b.pad(x, low, high, value=value)


def _taps(b: Builder, x: Val, axis: _Axis) -> Iterator[Val]:
    """For each tap, what it meets in every window, of the padded ``x``."""
    for tap in range(axis.taps):
        start = tap * axis.dilation
        yield b.slice_dim(
            x, axis.dim, start, start + (axis.count - 1) * axis.stride + 1, axis.stride
        )


def _covering(b: Builder, windows: Val, axis: _Axis, which: int, fill: Any) -> Val:
    """For each input element the value of its ``which``-th last covering window; ``fill`` if there is none.

    With dilation or a stride that does not divide the window, the window named may not cover the element.
    """
    dim = axis.dim
    shape = (*windows.shape[: dim + 1], axis.stride, *windows.shape[dim + 1 :])
    dims = [i for i in range(len(shape)) if i != dim + 1]
    repeated = b.broadcast_in_dim(windows, shape, dims) if axis.stride > 1 else windows
    length = axis.count * axis.stride
    repeated = b.reshape(repeated, (*windows.shape[:dim], length, *windows.shape[dim + 1 :]))
    low, high = [0] * windows.ndim, [0] * windows.ndim
    low[dim] = which * axis.stride - axis.low
    high[dim] = axis.size - length - low[dim]
    return b.pad(repeated, low, high, value=fill)


# Maximum


def _plane_index(b: Builder, shape: Sequence[int], rank: int) -> Val:
    """Each element's row-major position within its last ``rank`` dimensions."""
    total: Val | None = None
    step = 1
    for dim in reversed(range(len(shape) - rank, len(shape))):
        part = b.mul(b.iota(shape, dim, _INDEX), step)
        total = part if total is None else b.add(total, part)
        step *= shape[dim]
    assert total is not None
    return total


def _larger(b: Builder, best: tuple[Val, Val] | None, value: Val, index: Val) -> tuple[Val, Val]:
    """The first maximum so far, or the last NaN; an index of -1 marks padding."""
    if best is None:
        return value, index
    better = b.or_(b.gt(value, best[0]), b.lt(best[1], 0))
    if is_float(value.dtype):
        better = b.or_(better, b.isnan(value))
    return b.select(better, value, best[0]), b.select(better, index, best[1])


def _max_pool(b: Builder, x: Val, axes: Sequence[_Axis]) -> tuple[Val, Val]:
    value, index = x, _plane_index(b, x.shape, len(axes))
    for axis in reversed(axes):
        best: tuple[Val, Val] | None = None
        values = _taps(b, _pad_axis(b, value, axis, lowest(x.dtype)), axis)
        indices = _taps(b, _pad_axis(b, index, axis, -1), axis)
        for pair in zip(values, indices, strict=True):
            best = _larger(b, best, *pair)
        assert best is not None
        value, index = best
    # What reads them would find the maxima anew, each reader for itself.
    return b.materialize(value), b.materialize(index)


def _empty_pair(b: Builder, out: Any) -> tuple[Val, Val]:
    return b.full(shape_of(out[0]), 0, out[0].dtype), b.full(shape_of(out[1]), 0, torch.int64)


def _max_pool_backward(
    b: Builder, out: Any, grad: Val, indices: Val, axes: Sequence[_Axis] | None, rank: int
) -> Val:
    """The gradient at each element, from the windows whose maximum it is."""
    wide = b.convert(grad, opmath(out.dtype))
    shape = shape_of(out)
    if grad.numel == 0:
        return b.full(shape, 0, out.dtype)
    index = b.convert(indices, _INDEX)
    if axes is None or math.prod(axis.covering for axis in axes) > _MAX_COVERING:
        return finish(b, _scatter_planes(b, wide, index, shape, rank, add=True), out)
    if _has_few_phases(axes):
        return finish(b, _by_phase(b, wide, index, axes), out)
    own = _plane_index(b, shape, rank)
    total: Val | None = None
    for which in product(*(range(axis.covering) for axis in axes)):
        seen_grad, seen_index = wide, index
        for axis, number in zip(axes, which, strict=True):
            seen_grad = _covering(b, seen_grad, axis, number, 0)
            seen_index = _covering(b, seen_index, axis, number, -1)
        term = b.select(b.eq(seen_index, own), seen_grad, 0)
        total = term if total is None else b.add(total, term)
    assert total is not None
    return finish(b, total, out)


# Where windows overlap, positions are taken apart by phase, which is the position modulo the stride: the windows that
# cover those of one phase lie at fixed offsets, so that no position needs a division.


def _has_few_phases(axes: Sequence[_Axis]) -> bool:
    phases, taps = math.prod(a.stride for a in axes), math.prod(a.taps for a in axes)
    overlap = any(axis.covering > 1 for axis in axes)
    return overlap and 1 < phases <= _MAX_PHASES and taps <= _MAX_COVERING


def _by_phase(b: Builder, grad: Val, index: Val, axes: Sequence[_Axis]) -> Val:
    """Each position's sum of the gradients of the windows that name it."""
    parts = [
        _of_phase(b, grad, index, axes, phases)
        for phases in product(*(range(axis.stride) for axis in axes))
    ]
    for axis in reversed(axes):
        groups = [parts[i : i + axis.stride] for i in range(0, len(parts), axis.stride)]
        parts = [_stacked(b, group, axis.dim + 1) for group in groups]
    lengths, limits = list(grad.shape), list(grad.shape)
    for axis in axes:
        lengths[axis.dim], limits[axis.dim] = _periods(axis) * axis.stride, axis.size
    return b.slice(b.reshape(parts[0], lengths), [0] * grad.ndim, limits)


def _of_phase(
    b: Builder, grad: Val, index: Val, axes: Sequence[_Axis], phases: Sequence[int]
) -> Val:
    """The sums at positions ``stride * k + phase``."""
    periods = [_periods(axis) for axis in axes]
    own, step = b.full(periods, 0, _INDEX), 1
    for i in reversed(range(len(axes))):
        place = b.add(b.mul(b.iota(periods, i, _INDEX), axes[i].stride), phases[i])
        own, step = b.add(own, b.mul(place, step)), step * axes[i].size
    total = b.full((*grad.shape[: axes[0].dim], *periods), 0, grad.dtype)
    for shifts in product(*map(_window_offsets, axes, phases)):
        low, high = [0] * grad.ndim, [0] * grad.ndim
        for axis, period, shift in zip(axes, periods, shifts, strict=True):
            low[axis.dim], high[axis.dim] = -shift, period - axis.count + shift
        hit = b.eq(b.pad(index, low, high, value=-1), own)
        total = b.add(total, b.select(hit, b.pad(grad, low, high), 0))
    return total


def _window_offsets(axis: _Axis, phase: int) -> list[int]:
    """For each window that covers position ``stride * k + phase``: its number less ``k``."""
    reach = [phase + axis.low - tap * axis.dilation for tap in range(axis.taps)]
    return [distance // axis.stride for distance in reach if distance % axis.stride == 0]


def _periods(axis: _Axis) -> int:
    return -(-axis.size // axis.stride)


def _stacked(b: Builder, parts: Sequence[Val], dim: int) -> Val:
    return b.concat([b.unsqueeze(part, dim) for part in parts], dim)


def _scatter_planes(
    b: Builder, values: Val, index: Val, shape: Sequence[int], rank: int, *, add: bool
) -> Val:
    """Zeros of ``shape`` with ``values`` put (or added) at ``index`` of each plane of ``rank`` dimensions."""
    size, planes = math.prod(shape[-rank:]), math.prod(shape[:-rank])
    each = values.numel // planes
    flat = b.reshape(index, (planes, each))
    flat = b.add(flat, b.mul(b.iota(flat.shape, 0, index.dtype), size))
    result = b.scatter(
        [b.full((planes * size,), 0, values.dtype)],
        b.reshape(flat, (values.numel, 1)),
        [b.reshape(values, (values.numel,))],
        (lambda old, new: b.add(old, new)) if add else (lambda old, new: new),
        window_dims=[],
        inserted=[0],
        index_map=[0],
        index_vector_dim=1,
    )
    return b.reshape(result[0], shape)


def _adaptive_max_pool(b: Builder, x: Val, counts: Sequence[int]) -> tuple[Val, Val]:
    """Windows of unequal sizes; a shorter one repeats its last element, whose index is then -1."""
    rank = len(counts)
    value, index = x, _plane_index(b, x.shape, rank)
    for i in reversed(range(rank)):
        dim = x.ndim - rank + i
        windows = _adaptive_windows(x.shape[dim], counts[i])
        best: tuple[Val, Val] | None = None
        for tap in range(max(end - start for start, end in windows)):
            places = [min(start + tap, end - 1) for start, end in windows]
            seen = b.take(value, b.constant(places, _INDEX), dim)
            places_seen = b.take(index, b.constant(places, _INDEX), dim)
            best = _larger(b, best, seen, places_seen)
        assert best is not None
        value, index = best
    return value, index


def _adaptive_windows(size: int, count: int) -> list[tuple[int, int]]:
    return [(o * size // count, -(-(o + 1) * size // count)) for o in range(count)]


def _register_max(rank: int) -> None:
    @emitter(f"aten.max_pool{rank}d_with_indices")
    def max_pool(
        b: Builder,
        out: Any,
        self: Val,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Val, Val]:
        counts = shape_of(out[0])[-rank:]
        if 0 in shape_of(out[0]):
            return _empty_pair(b, out)
        axes = _axes(self.shape, counts, kernel_size, stride, padding, dilation)
        value, index = _max_pool(b, self, axes)
        return value, b.convert(index, torch.int64)

    @emitter(f"aten.max_pool{rank}d_with_indices_backward")
    def max_pool_backward(
        b: Builder,
        out: Any,
        grad_output: Val,
        self: Val,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        indices: Val,
    ) -> Val:
        counts = grad_output.shape[-rank:]
        axes = _axes(self.shape, counts, kernel_size, stride, padding, dilation)
        return _max_pool_backward(b, out, grad_output, indices, axes, rank)

    @emitter(f"aten.adaptive_max_pool{rank}d")
    def adaptive_max_pool(
        b: Builder, out: Any, self: Val, output_size: Sequence[int]
    ) -> tuple[Val, Val]:
        if 0 in shape_of(out[0]):
            return _empty_pair(b, out)
        counts = shape_of(out[0])[-rank:]
        axes = _even_axes(self.shape, counts)
        pool = _max_pool(b, self, axes) if axes else _adaptive_max_pool(b, self, counts)
        return pool[0], b.convert(pool[1], torch.int64)

    @emitter(f"aten.adaptive_max_pool{rank}d_backward")
    def adaptive_max_pool_backward(
        b: Builder, out: Any, grad_output: Val, self: Val, indices: Val
    ) -> Val:
        axes = _even_axes(self.shape, grad_output.shape[-rank:])
        return _max_pool_backward(b, out, grad_output, indices, axes, rank)

    @emitter(f"aten.max_unpool{rank}d")
    def max_unpool(b: Builder, out: Any, self: Val, indices: Val, *args: Any, **_: Any) -> Val:
        if self.numel == 0:
            return b.full(shape_of(out), 0, out.dtype)
        return _scatter_planes(b, self, indices, shape_of(out), rank, add=False)


# Average


def _sum_windows(b: Builder, x: Val, axis: _Axis) -> Val:
    padded = _pad_axis(b, x, axis, 0)
    if axis.taps == axis.stride:
        split = (*x.shape[: axis.dim], axis.count, axis.taps, *x.shape[axis.dim + 1 :])
        return b.reduce_sum(b.reshape(padded, split), [axis.dim + 1])
    if axis.taps > _MAX_SLICES:
        return _windowed_sum(b, padded, axis.dim, axis.taps, axis.stride)
    total: Val | None = None
    for term in _taps(b, padded, axis):
        total = term if total is None else b.add(total, term)
    assert total is not None
    return total


def _windowed_sum(b: Builder, x: Val, dim: int, taps: int, stride: int) -> Val:
    window, strides = [1] * x.ndim, [1] * x.ndim
    window[dim], strides[dim] = taps, stride
    return b.reduce_window([x], [0], window, b.add, strides=strides)[0]


def _sum_covering(b: Builder, windows: Val, axis: _Axis) -> Val:
    """The transpose of ``_sum_windows``."""
    if axis.covering > _MAX_SLICES:
        low, high, inner = ([0] * windows.ndim for _ in range(3))
        inner[axis.dim] = axis.stride - 1
        low[axis.dim] = axis.taps - 1 - axis.low
        spread = (axis.count - 1) * axis.stride + 1
        high[axis.dim] = axis.size + axis.taps - 1 - spread - low[axis.dim]
        return _windowed_sum(b, b.pad(windows, low, high, inner), axis.dim, axis.taps, 1)
    total: Val | None = None
    for which in range(axis.covering):
        term = _covering(b, windows, axis, which, 0)
        covers = [
            (i + axis.low) % axis.stride + which * axis.stride < axis.taps for i in range(axis.size)
        ]
        if not all(covers):
            mask = b.broadcast_in_dim(b.constant(covers, torch.bool), term.shape, [axis.dim])
            term = b.select(mask, term, 0)
        total = term if total is None else b.add(total, term)
    assert total is not None
    return total


def _divisors(axis: _Axis, count_include_pad: bool) -> list[int]:
    """How many elements count in each window; only windows of padding alone have none, and they sum to 0."""
    result = []
    for o in range(axis.count):
        start = o * axis.stride - axis.low
        end = min(start + axis.taps, axis.size + axis.low)
        if not count_include_pad:
            start, end = max(start, 0), min(end, axis.size)
        result.append(max(end - start, 1))
    return result


def _divide(
    b: Builder, x: Val, axes: Sequence[_Axis], count_include_pad: bool, divisor_override: int | None
) -> Val:
    """``x``, one value per window, divided by the windows' counts."""
    if divisor_override is not None:
        return b.div(x, divisor_override)
    same, varying = 1, None
    for axis in axes:
        counts = _divisors(axis, count_include_pad)
        if len(set(counts)) == 1:
            same *= counts[0]
            continue
        column = b.broadcast_in_dim(b.constant(counts, x.dtype), x.shape, [axis.dim])
        varying = column if varying is None else b.mul(varying, column)
    return b.div(x, same if varying is None else b.mul(varying, same))


def _register_average(rank: int) -> None:
    @emitter(f"aten.avg_pool{rank}d")
    def avg_pool(
        b: Builder,
        out: Any,
        self: Val,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Val:
        shape = shape_of(out)
        if 0 in shape:
            return b.full(shape, 0, out.dtype)
        axes = _axes(self.shape, shape[-rank:], kernel_size, stride, padding)
        value = b.convert(self, opmath(out.dtype))
        for axis in reversed(axes):
            value = _sum_windows(b, value, axis)
        return finish(b, _divide(b, value, axes, count_include_pad, divisor_override), out)

    @emitter(f"aten.avg_pool{rank}d_backward")
    def avg_pool_backward(
        b: Builder,
        out: Any,
        grad_output: Val,
        self: Val,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Val:
        if grad_output.numel == 0:
            return b.full(shape_of(out), 0, out.dtype)
        axes = _axes(self.shape, grad_output.shape[-rank:], kernel_size, stride, padding)
        wide = b.convert(grad_output, opmath(out.dtype))
        value = _divide(b, wide, axes, count_include_pad, divisor_override)
        for axis in axes:
            value = _sum_covering(b, value, axis)
        return finish(b, value, out)

    @emitter(f"aten._adaptive_avg_pool{rank}d")
    def adaptive_avg_pool(b: Builder, out: Any, self: Val, output_size: Sequence[int]) -> Val:
        shape = shape_of(out)
        if 0 in shape:
            return b.full(shape, 0, out.dtype)
        value = b.convert(self, opmath(out.dtype))
        axes = _even_axes(self.shape, shape[-rank:])
        if axes is None:
            for i in reversed(range(rank)):
                dim = self.ndim - rank + i
                value = resampling.apply(b, value, dim, _mean_rows(self.shape[dim], shape[dim]))
            return finish(b, value, out)
        for axis in reversed(axes):
            value = _sum_windows(b, value, axis)
        return finish(b, _divide(b, value, axes, True, None), out)

    @emitter(f"aten._adaptive_avg_pool{rank}d_backward")
    def adaptive_avg_pool_backward(b: Builder, out: Any, grad_output: Val, self: Val) -> Val:
        shape = shape_of(out)
        if grad_output.numel == 0:
            return b.full(shape, 0, out.dtype)
        value = b.convert(grad_output, opmath(out.dtype))
        axes = _even_axes(shape, grad_output.shape[-rank:])
        if axes is None:
            for dim in range(self.ndim - rank, self.ndim):
                rows = _mean_rows(shape[dim], grad_output.shape[dim]).transposed()
                value = resampling.apply(b, value, dim, rows)
            return finish(b, value, out)
        value = _divide(b, value, axes, True, None)
        for axis in axes:
            value = _sum_covering(b, value, axis)
        return finish(b, value, out)


def _mean_rows(size: int, count: int) -> resampling.Rows:
    windows = _adaptive_windows(size, count)
    entries = [[(i, 1.0 / (end - start)) for i in range(start, end)] for start, end in windows]
    return resampling.Rows.from_entries(count, size, entries)


for _rank in (2, 3):
    _register_max(_rank)
    _register_average(_rank)
