"""Discrete Fourier transforms."""

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import complex_of, mlir_name
from torchneuron.lowering.emitting import shape_of
from torchneuron.lowering.registry import emitter

# What one StableHLO fft transforms at most.
_MAX_RANK = 3


class Normalization(IntEnum):
    """PyTorch's ``fft_norm_mode``: what the sum over n points is divided by."""

    NONE = 0
    ROOT_N = 1
    N = 2


def _scale(mode: int, count: int) -> float:
    if mode == Normalization.NONE:
        return 1.0
    return 1.0 / (math.sqrt(count) if mode == Normalization.ROOT_N else count)


def _scaled(b: Builder, x: Val, factor: float) -> Val:
    """``x`` times a real number, by parts if it is complex."""
    if factor == 1.0:
        return x
    if not x.dtype.is_complex:
        return b.mul(x, factor)
    return b.complex(b.mul(b.real(x), factor), b.mul(b.imag(x), factor))


def _over(b: Builder, x: Val, dims: Sequence[int], kind: str, length: Sequence[int]) -> Val:
    """The transform ``kind`` over at most three ``dims``, whose sizes in the real domain are ``length``."""
    order = [axis for axis in range(x.ndim) if axis not in dims] + list(dims)
    transformed = b.fft(b.transpose(x, order), kind, length)
    return b.transpose(transformed, [order.index(axis) for axis in range(x.ndim)])


def _complex_over(b: Builder, x: Val, dims: Sequence[int], kind: str) -> Val:
    """FFT or IFFT over any number of dimensions."""
    for start in range(0, len(dims), _MAX_RANK):
        some = dims[start : start + _MAX_RANK]
        x = _over(b, x, some, kind, [x.shape[dim] for dim in some])
    return x


def _count(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[dim] for dim in dims)


@emitter("aten._fft_c2c")
def fft_c2c(
    b: Builder, out: Any, x: Val, dim: Sequence[int], normalization: int, forward: bool
) -> Val:
    mlir_name(out.dtype)
    if x.numel == 0 or not dim:
        return x
    dims = [axis % x.ndim for axis in dim]
    count = _count(x.shape, dims)
    result = _complex_over(b, x, dims, "FFT" if forward else "IFFT")
    # IFFT has divided by the count already.
    return _scaled(b, result, _scale(normalization, count) * (1 if forward else count))


@emitter("aten._fft_r2c")
def fft_r2c(
    b: Builder, out: Any, x: Val, dim: Sequence[int], normalization: int, onesided: bool
) -> Val:
    mlir_name(out.dtype)
    if out.numel() == 0:
        return b.full(shape_of(out), 0, out.dtype)
    dims = [axis % x.ndim for axis in dim]
    factor = _scale(normalization, _count(x.shape, dims))
    if not onesided:
        return _scaled(b, _complex_over(b, b.convert(x, out.dtype), dims, "FFT"), factor)
    *rest, last = dims
    halved = _over(b, x, [last], "RFFT", [x.shape[last]])
    return _scaled(b, _complex_over(b, halved, rest, "FFT"), factor)


@emitter("aten._fft_c2r")
def fft_c2r(
    b: Builder, out: Any, x: Val, dim: Sequence[int], normalization: int, last_dim_size: int
) -> Val:
    mlir_name(complex_of(out.dtype))
    if out.numel() == 0:
        return b.full(shape_of(out), 0, out.dtype)
    dims = [axis % x.ndim for axis in dim]
    count = _count(shape_of(out), dims)
    *rest, last = dims
    inner = b.slice_dim(_complex_over(b, x, rest, "IFFT"), last, 0, last_dim_size // 2 + 1)
    result = _over(b, inner, [last], "IRFFT", [last_dim_size])
    return _scaled(b, result, _scale(normalization, count) * count)
