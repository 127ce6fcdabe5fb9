"""Ops that move data: broadcasting, slicing, padding, concatenation, reinterpretation."""

from collections.abc import Sequence

import torch

from torchneuron.lowering.dtypes import complex_of, is_complex, real_of
from torchneuron.lowering.hlo.core import Core, Number
from torchneuron.lowering.hlo.value import Val


def i64_array(values: Sequence[int]) -> str:
    """``array<i64: 1, 2>``"""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape they broadcast to; ValueError if they do not."""
    if len(set(shapes)) == 1:
        return shapes[0]
    rank = max(len(shape) for shape in shapes)
    result = []
    for column in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        sizes = {size for size in column if size != 1}
        if len(sizes) > 1:
            raise ValueError(f"shapes {shapes} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


class Shape(Core):
    """Ops that move data."""

    def iota(self, shape: Sequence[int], dim: int, dtype: torch.dtype = torch.int64) -> Val:
        """Values 0, 1, 2.. along ``dim``."""
        return self.op1("stablehlo.iota", [], dtype, shape, f"iota_dimension = {dim} : i64")

    def broadcast_in_dim(self, x: Val, shape: Sequence[int], dims: Sequence[int]) -> Val:
        """``x``'s dimension i becomes dimension ``dims[i]`` of ``shape``."""
        if tuple(shape) == x.shape and list(dims) == list(range(x.ndim)):
            return x
        return self.op1(
            "stablehlo.broadcast_in_dim",
            [x],
            x.dtype,
            shape,
            f"broadcast_dimensions = {i64_array(dims)}",
        )

    def broadcast_to(self, x: Val, shape: Sequence[int]) -> Val:
        """``x`` expanded to ``shape`` by the usual rule."""
        shape = tuple(shape)
        if broadcast_shapes(x.shape, shape) != shape:
            raise ValueError(f"{x.shape} does not broadcast to {shape}")
        return self.broadcast_in_dim(x, shape, range(len(shape) - x.ndim, len(shape)))

    def transpose(self, x: Val, permutation: Sequence[int]) -> Val:
        """Dimension i of the result is dimension ``permutation[i]`` of ``x``."""
        if list(permutation) == list(range(x.ndim)):
            return x
        shape = [x.shape[dim] for dim in permutation]
        result = self.op1(
            "stablehlo.transpose", [x], x.dtype, shape, f"permutation = {i64_array(permutation)}"
        )
        result.transposed = (x, tuple(permutation))
        return result

    def unsqueeze(self, x: Val, dim: int) -> Val:
        """``x`` with a dimension of size 1 at ``dim``."""
        dim %= x.ndim + 1
        return self.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))

    def squeeze(self, x: Val, dim: int) -> Val:
        """``x`` without ``dim``, which has size 1."""
        dim %= x.ndim
        return self.reshape(x, (*x.shape[:dim], *x.shape[dim + 1 :]))

    def slice(
        self,
        x: Val,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> Val:
        """``x[starts[0]:limits[0]:strides[0], ...]`` with static, valid bounds."""
        steps = list(strides) if strides is not None else [1] * x.ndim
        shape = tuple(
            max(0, -(-(limit - start) // step))
            for start, limit, step in zip(starts, limits, steps, strict=True)
        )
        if shape == x.shape:
            return x
        attrs = (
            f"start_indices = {i64_array(list(starts))}, "
            f"limit_indices = {i64_array(list(limits))}, "
            f"strides = {i64_array(steps)}"
        )
        result = self.op1("stablehlo.slice", [x], x.dtype, shape, attrs)
        if set(steps) == {1}:
            result.sliced = (x, tuple(starts))
        return result

    def slice_dim(self, x: Val, dim: int, start: int, limit: int, step: int = 1) -> Val:
        """``slice`` of one dimension."""
        starts, limits, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
        starts[dim], limits[dim], steps[dim] = start, limit, step
        return self.slice(x, starts, limits, steps)

    def _indices(self, starts: Sequence[Val | int]) -> list[Val]:
        return [self.scalar(start, torch.int64) for start in starts]

    def dynamic_slice(self, x: Val, starts: Sequence[Val | int], sizes: Sequence[int]) -> Val:
        """A block of ``sizes`` at ``starts``, which StableHLO clamps so that the block lies inside
        ``x``.
        """
        if tuple(sizes) == x.shape:
            return x
        if all(isinstance(start, int) for start in starts):
            begin = [int(start) for start in starts]  # type: ignore[arg-type]
            return self.slice(
                x, begin, [start + size for start, size in zip(begin, sizes, strict=True)]
            )
        operands = [x, *self._indices(starts)]
        return self.op1(
            "stablehlo.dynamic_slice", operands, x.dtype, sizes, f"slice_sizes = {i64_array(sizes)}"
        )

    def concat(self, values: Sequence[Val], dim: int) -> Val:
        """The values, of equal dtype, one after the other along ``dim``."""
        if len(values) == 1:
            return values[0]
        shape = list(values[0].shape)
        dim %= len(shape)
        shape[dim] = sum(value.shape[dim] for value in values)
        return self.op1(
            "stablehlo.concatenate",
            list(values),
            values[0].dtype,
            shape,
            f"dimension = {dim} : i64",
        )

    def pad(
        self,
        x: Val,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
        value: Val | Number = 0,
    ) -> Val:
        """Pad with ``value``; negative ``low`` and ``high`` crop, ``interior`` elements go between
        neighbours.
        """
        inner = list(interior) if interior is not None else [0] * x.ndim
        if not any(low) and not any(high) and not any(inner):
            return x
        shape = [
            max(0, lo + hi + size + max(0, size - 1) * mid)
            for size, lo, hi, mid in zip(x.shape, low, high, inner, strict=True)
        ]
        attrs = (
            f"edge_padding_low = {i64_array(list(low))}, "
            f"edge_padding_high = {i64_array(list(high))}, "
            f"interior_padding = {i64_array(inner)}"
        )
        return self.op1("stablehlo.pad", [x, self.scalar(value, x.dtype)], x.dtype, shape, attrs)

    def reverse(self, x: Val, dims: Sequence[int]) -> Val:
        """``x`` backwards along ``dims``."""
        if not dims:
            return x
        return self.op1(
            "stablehlo.reverse", [x], x.dtype, x.shape, f"dimensions = {i64_array(dims)}"
        )

    # Reinterpretation

    def bitcast_convert(self, x: Val, dtype: torch.dtype) -> Val:
        """The bits as ``dtype``: a narrower one adds a last dimension, a wider one takes it away.

        Neither dtype may be bool or complex; ``reinterpret`` takes those too.
        """
        if dtype is x.dtype:
            return x
        if dtype.itemsize < x.dtype.itemsize:
            shape = (*x.shape, x.dtype.itemsize // dtype.itemsize)
        elif dtype.itemsize > x.dtype.itemsize:
            shape = x.shape[:-1]
        else:
            shape = x.shape
        return self.op1("stablehlo.bitcast_convert", [x], dtype, shape)

    def reinterpret(self, x: Val, dtype: torch.dtype) -> Val:
        """``x.view(dtype)`` of a dense tensor: the last dimension shrinks or grows with the element
        size.
        """
        if x.dtype is dtype:
            return x
        if x.dtype is torch.bool:
            return self.reinterpret(self.convert(x, torch.uint8), dtype)
        if dtype is torch.bool:
            return self.convert(self.reinterpret(x, torch.uint8), torch.bool)
        if is_complex(x.dtype):
            if is_complex(dtype):
                return self._reinterpret_complex(x, dtype)
            return self.reinterpret(self.view_as_real_flat(x), dtype)
        if is_complex(dtype):
            return self.view_as_complex_flat(self.reinterpret(x, real_of(dtype)))
        source, target = x.dtype.itemsize, dtype.itemsize
        if source > target:
            last = x.shape[-1] if x.shape else 1
            return self.reshape(
                self.bitcast_convert(x, dtype), (*x.shape[:-1], last * (source // target))
            )
        if source < target:
            ratio = target // source
            x = self.reshape(x, (*x.shape[:-1], x.shape[-1] // ratio, ratio))
        return self.bitcast_convert(x, dtype)

    def _reinterpret_complex(self, x: Val, dtype: torch.dtype) -> Val:
        return self.view_as_complex_flat(
            self.reinterpret(self.view_as_real_flat(x), real_of(dtype))
        )

    def view_as_real_flat(self, x: Val) -> Val:
        """(..., n) complex -> (..., 2n) real, the parts interleaved."""
        part = real_of(x.dtype)
        real = self.op1("stablehlo.real", [x], part, x.shape)
        imag = self.op1("stablehlo.imag", [x], part, x.shape)
        pairs = self.concat([self.unsqueeze(real, -1), self.unsqueeze(imag, -1)], -1)
        last = x.shape[-1] if x.shape else 1
        return self.reshape(pairs, (*x.shape[:-1], 2 * last))

    def view_as_complex_flat(self, x: Val) -> Val:
        """(..., 2n) real -> (..., n) complex."""
        dim = x.ndim - 1
        real = self.slice_dim(x, dim, 0, x.shape[-1], 2)
        imag = self.slice_dim(x, dim, 1, x.shape[-1], 2)
        return self.op1("stablehlo.complex", [real, imag], complex_of(x.dtype), real.shape)
