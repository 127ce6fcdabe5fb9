"""Sampling of an input at the positions of a grid, and its gradient.

Along each dimension a position has a few taps: an input index, its weight, and the weight's derivative by the
position. A sample is the sum over all combinations of taps. Rows of all channels are read and written at once.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.registry import emitter

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)
_INDEX = torch.int32


@dataclass(frozen=True)
class _Tap:
    """``index`` is integral, as a float; ``weight`` and ``slope`` None stand for 1 and 0."""

    index: Val
    weight: Val | None = None
    slope: Val | None = None


class _Axis:
    """One dimension of ``size`` elements: the taps of the normalized coordinates ``grid``."""

    def __init__(self, b: Builder, grid: Val, size: int, mode: int, padding: int, corners: bool):
        self._b, self._size, self._padding, self._corners = b, size, padding, corners
        if corners:
            self.factor, position = (size - 1) / 2, b.mul(b.add(grid, 1), (size - 1) / 2)
        else:
            self.factor = size / 2
            position = b.mul(b.sub(b.mul(b.add(grid, 1), size), 1), 0.5)
        self.sign: Val | None = None
        if mode == _BICUBIC:
            self.taps = self._cubic(position)
            return
        position, self.sign = self._padded(position)
        if mode == _NEAREST:
            self.taps = [_Tap(b.round_even(position))]
        else:
            first = b.floor(position)
            share = b.sub(position, first)
            one = b.full(share.shape, 1, share.dtype)
            self.taps = [
                _Tap(first, b.sub(1, share), b.neg(one)),
                _Tap(b.add(first, 1), share, one),
            ]

    def _padded(self, position: Val) -> tuple[Val, Val | None]:
        """(position brought inside, its derivative by what it was, None for 1)"""
        b = self._b
        if self._padding == _ZEROS:
            return position, None
        sign: Val | None = None
        if self._padding == _REFLECTION:
            position, sign = self._reflected(position)
        last = self._size - 1
        inside = b.and_(b.gt(position, 0), b.lt(position, last))
        inner = sign if sign is not None else b.full(position.shape, 1, position.dtype)
        return b.clamp(0, position, last), b.select(inside, inner, 0)

    def _reflected(self, position: Val) -> tuple[Val, Val]:
        b = self._b
        low, span = (0.0, self._size - 1) if self._corners else (-0.5, self._size)
        if span == 0:
            zero = b.full(position.shape, 0, position.dtype)
            return zero, zero
        shifted = b.sub(position, low)
        distance = b.abs(shifted)
        flips = b.floor(b.div(distance, span))
        rest = b.rem(distance, b.full((), span, distance.dtype))
        even = b.eq(b.rem(flips, b.full((), 2, flips.dtype)), 0)
        value = b.add(b.select(even, rest, b.sub(span, rest)), low)
        forward = b.ne(b.lt(shifted, 0), even)
        return value, b.select(forward, 1, b.full(value.shape, -1, value.dtype))

    def _cubic(self, position: Val) -> list[_Tap]:
        b = self._b
        first = b.floor(position)
        share = b.sub(position, first)
        taps = []
        for offset in range(-1, 3):
            index = self._padded(b.add(first, offset))[0]
            # Reflection about half positions leaves rounding errors: the CPU truncates.
            index = b.floor(index) if self._padding != _ZEROS else index
            taps.append(_Tap(index, *self._cubic_weight(b.sub(share, offset))))
        return taps

    def _cubic_weight(self, distance: Val) -> tuple[Val, Val]:
        """Keys' kernel with a = -0.75 and its derivative."""
        b, a = self._b, -0.75
        x, sign = b.abs(distance), b.sign(distance)
        near = b.add(b.mul(b.mul(b.sub(b.mul(x, a + 2), a + 3), x), x), 1)
        far = b.mul(b.sub(b.mul(b.add(b.mul(b.sub(x, 5), x), 8), x), 4), a)
        near_slope = b.mul(b.sub(b.mul(x, 3 * (a + 2)), 2 * (a + 3)), x)
        far_slope = b.mul(b.add(b.mul(b.sub(b.mul(x, 3), 10), x), 8), a)
        inner = b.le(x, 1)
        return b.select(inner, near, far), b.mul(b.select(inner, near_slope, far_slope), sign)


@dataclass(frozen=True)
class _Corner:
    """One combination of taps at all grid positions: flat row, whether it exists, the taps."""

    row: Val
    valid: Val
    taps: tuple[_Tap, ...]

    def weight(self, b: Builder, slope_of: int | None = None) -> Val | None:
        """The product of the weights, of dimension ``slope_of`` the slope; None for 1 (for 0 if a slope is missing)."""
        total: Val | None = None
        for i, tap in enumerate(self.taps):
            value = tap.slope if i == slope_of else tap.weight
            if value is not None:
                total = value if total is None else b.mul(total, value)
        return total


def _corners(
    b: Builder, axes: Sequence[_Axis], sizes: Sequence[int], batch: int
) -> Iterator[_Corner]:
    """``axes`` and ``sizes`` from the first spatial dimension to the last; values are (N, positions)."""
    for taps in product(*(axis.taps for axis in axes)):
        valid: Val | None = None
        row: Val | None = None
        for tap, size in zip(taps, sizes, strict=True):
            inside = b.and_(b.ge(tap.index, 0), b.le(tap.index, size - 1))
            valid = inside if valid is None else b.and_(valid, inside)
            index = b.convert(b.clamp(0, tap.index, size - 1), _INDEX)
            row = index if row is None else b.add(b.mul(row, size), index)
        assert valid is not None
        assert row is not None
        first = b.mul(b.iota(row.shape, 0, _INDEX), math.prod(sizes))
        yield _Corner(b.select(valid, b.add(row, first), first), valid, taps)


class _Sampler:
    """Input (N, C, sizes) as rows of channels, and the corners of the grid (N, positions, rank)."""

    def __init__(self, b: Builder, x: Val, grid: Val, mode: int, padding: int, corners: bool):
        self.b = b
        self.batch, self.channels, *self.sizes = x.shape
        dtype = opmath(x.dtype)
        self.rows = self._as_rows(b.convert(x, dtype))
        self.rank, self.positions = len(self.sizes), grid.shape[1:-1]
        self.count = math.prod(self.positions)
        flat = b.reshape(b.convert(grid, dtype), (self.batch, self.count, self.rank))
        self.axes = []
        for i, size in enumerate(self.sizes):
            # The grid's last dimension names the input's from the last to the first.
            place = self.rank - 1 - i
            column = b.reshape(b.slice_dim(flat, 2, place, place + 1), (self.batch, self.count))
            self.axes.append(_Axis(b, column, size, mode, padding, corners))

    def _as_rows(self, x: Val) -> Val:
        """(N, C, ...) to (N * elements, C)"""
        moved = self.b.transpose(x, [0, *range(2, x.ndim), 1])
        return self.b.reshape(moved, (x.numel // x.shape[1], x.shape[1]))

    def corners(self) -> Iterator[_Corner]:
        return _corners(self.b, self.axes, self.sizes, self.batch)

    def read(self, corner: _Corner) -> Val:
        """(N, positions, C), 0 outside"""
        b = self.b
        seen = b.take(self.rows, corner.row, 0)
        return b.select(b.unsqueeze(corner.valid, 2), seen, 0)

    def sample(self) -> Val:
        """(N, C, positions...)"""
        b = self.b
        total: Val | None = None
        for corner in self.corners():
            term, weight = self.read(corner), corner.weight(b)
            if weight is not None:
                term = b.mul(term, b.unsqueeze(weight, 2))
            total = term if total is None else b.add(total, term)
        assert total is not None
        moved = b.transpose(total, [0, 2, 1])
        return b.reshape(moved, (self.batch, self.channels, *self.positions))

    def input_gradient(self, grad: Val) -> Val:
        """(N, C, sizes...) from the gradient (N, positions, C) of the samples."""
        b = self.b
        rows, updates = [], []
        for corner in self.corners():
            weight = corner.weight(b)
            update = grad if weight is None else b.mul(grad, b.unsqueeze(weight, 2))
            rows.append(b.select(corner.valid, corner.row, self.rows.shape[0]))
            updates.append(update)
        places = b.reshape(b.concat(rows, 0), (len(rows) * self.batch * self.count, 1))
        values = b.reshape(b.concat(updates, 0), (places.shape[0], self.channels))
        summed = b.scatter(
            [b.full(self.rows.shape, 0, grad.dtype)],
            places,
            [values],
            b.add,
            window_dims=[1],
            inserted=[0],
            index_map=[0],
            index_vector_dim=1,
        )[0]
        shaped = b.reshape(summed, (self.batch, *self.sizes, self.channels))
        return b.transpose(shaped, [0, self.rank + 1, *range(1, self.rank + 1)])

    def grid_gradient(self, grad: Val) -> Val:
        """(N, positions, rank) from the gradient (N, positions, C) of the samples."""
        b = self.b
        totals: list[Val] = [b.full((self.batch, self.count), 0, grad.dtype)] * self.rank
        for corner in self.corners():
            if any(tap.slope is None for tap in corner.taps):
                break
            product_ = b.reduce_sum(b.mul(self.read(corner), grad), [2])
            for i in range(self.rank):
                slope = corner.weight(b, i)
                assert slope is not None
                totals[i] = b.add(totals[i], b.mul(slope, product_))
        columns = []
        for total, axis in zip(totals, self.axes, strict=True):
            scaled = b.mul(total, axis.factor)
            columns.append(scaled if axis.sign is None else b.mul(scaled, axis.sign))
        return b.concat([b.unsqueeze(column, 2) for column in reversed(columns)], 2)


@emitter("aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(
    b: Builder,
    out: Any,
    input: Val,
    grid: Val,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Val:
    if 0 in shape_of(out):
        return b.full(shape_of(out), 0, out.dtype)
    sampler = _Sampler(b, input, grid, interpolation_mode, padding_mode, align_corners)
    return finish(b, sampler.sample(), out)


@emitter("aten.grid_sampler_2d_backward", "aten.grid_sampler_3d_backward")
def grid_sampler_backward(
    b: Builder,
    out: Any,
    grad_output: Val,
    input: Val,
    grid: Val,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> list[Val | None]:
    if grad_output.numel == 0:
        return [None if like is None else b.full(shape_of(like), 0, like.dtype) for like in out]
    sampler = _Sampler(b, input, grid, interpolation_mode, padding_mode, align_corners)
    grad = b.reshape(grad_output, (sampler.batch, sampler.channels, sampler.count))
    grad = b.transpose(b.convert(grad, sampler.rows.dtype), [0, 2, 1])
    result: list[Val | None] = [None, None]
    if output_mask[0] and out[0] is not None:
        result[0] = finish(b, sampler.input_gradient(grad), out[0])
    if out[1] is not None:
        result[1] = finish(b, b.reshape(sampler.grid_gradient(grad), grid.shape), out[1])
    return result
