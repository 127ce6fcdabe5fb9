"""Small helpers that emitters share."""

from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import bits_dtype, opmath


def shape_of(out: torch.Tensor) -> tuple[int, ...]:
    """The result's shape as plain integers."""
    return tuple(int(size) for size in out.shape)


def operand(b: Builder, x: Val | Number, dtype: torch.dtype) -> Val | Number:
    """``x`` in ``dtype``; a static number stays one, to become a constant where it is used."""
    return b.convert(x, dtype) if isinstance(x, Val) else x


def tensor(b: Builder, x: Val | Number, dtype: torch.dtype) -> Val:
    """``x`` in ``dtype``; a static number becomes 0-d."""
    return b.convert(x, dtype) if isinstance(x, Val) else b.full((), x, dtype)


def finish(b: Builder, value: Val, out: torch.Tensor) -> Val:
    """``value`` broadcast and rounded to what the op gives."""
    return b.broadcast_to(b.convert(value, out.dtype), shape_of(out))


def in_opmath(b: Builder, out: torch.Tensor, *operands: Val | Number) -> list[Val]:
    """The operands in the dtype PyTorch computes ``out`` in; numbers become 0-d."""
    dtype = opmath(out.dtype)
    return [tensor(b, x, dtype) for x in operands]


def is_one(number: Any) -> bool:
    """Whether a number argument is statically 1."""
    return not isinstance(number, Val) and number == 1


def signbit(b: Builder, x: Val) -> Val:
    """Whether a real ``x`` is negative, -0.0 and NaNs by their sign bit."""
    if not x.dtype.is_floating_point:
        return b.lt(x, 0)
    bits = b.bitcast_convert(x, bits_dtype(x.dtype))
    return b.ge(bits, 1 << (8 * x.dtype.itemsize - 1))


def chebyshev(b: Builder, t: Val, coefficients: Sequence[float]) -> Val:
    """The Chebyshev series at ``t`` by Clenshaw's recurrence."""
    double = b.mul(t, 2.0)
    ahead, further = b.full(t.shape, 0.0, t.dtype), b.full(t.shape, 0.0, t.dtype)
    for coefficient in reversed(coefficients[1:]):
        ahead, further = b.add(b.sub(b.mul(double, ahead), further), coefficient), ahead
    return b.add(b.sub(b.mul(t, ahead), further), coefficients[0])
