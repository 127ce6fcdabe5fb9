"""Arithmetic of two tensors."""

from collections.abc import Callable
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import is_complex, is_float
from torchneuron.lowering.emitting import finish, in_opmath, is_one, operand, signbit, tensor
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter

Arg = Val | Number


def _scaled(b: Builder, x: Val, alpha: Arg) -> Val:
    return x if is_one(alpha) else b.mul(x, operand(b, alpha, x.dtype))


@emitter("aten.add.Tensor", "aten.add.Scalar")
def add(b: Builder, out: Any, x: Arg, y: Arg, alpha: Arg = 1) -> Val:
    left, right = in_opmath(b, out, x, y)
    return finish(b, b.add(left, _scaled(b, right, alpha)), out)


@emitter("aten.sub.Tensor", "aten.sub.Scalar")
def sub(b: Builder, out: Any, x: Arg, y: Arg, alpha: Arg = 1) -> Val:
    left, right = in_opmath(b, out, x, y)
    return finish(b, b.sub(left, _scaled(b, right, alpha)), out)


@emitter("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(b: Builder, out: Any, x: Arg, y: Arg, alpha: Arg = 1) -> Val:
    return sub(b, out, y, x, alpha)


@emitter("aten.mul.Tensor", "aten.mul.Scalar")
def mul(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    return finish(b, b.mul(*in_opmath(b, out, x, y)), out)


# Division


@emitter("aten.div.Tensor", "aten.div.Scalar")
def div(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    return finish(b, b.div(*in_opmath(b, out, x, y)), out)


@emitter("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(b: Builder, out: Any, x: Arg, y: Arg, rounding_mode: str | None = None) -> Val:
    if rounding_mode is None:
        return div(b, out, x, y)
    left, right = b.together(*in_opmath(b, out, x, y))
    if rounding_mode == "floor":
        return finish(b, _floor_div(b, left, right), out)
    quotient = b.div(left, right)
    return finish(b, b.trunc(quotient) if is_float(quotient.dtype) else quotient, out)


@emitter("aten.floor_divide", "aten.floor_divide.Scalar")
def floor_divide(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    return div_mode(b, out, x, y, "floor")


def _signs_differ(b: Builder, x: Val, y: Val) -> Val:
    return b.ne(b.lt(x, 0), b.lt(y, 0))


def _floor_div(b: Builder, x: Val, y: Val) -> Val:
    """Python's floor division; for floats exactly as PyTorch rounds it."""
    remainder = b.rem(x, y)
    inexact = b.and_(b.ne(remainder, 0), _signs_differ(b, remainder, y))
    if not is_float(x.dtype):
        quotient = b.div(x, y)
        return b.select(inexact, b.sub(quotient, 1), quotient) if x.dtype.is_signed else quotient
    ratio = b.div(x, y)
    quotient = b.div(b.sub(x, remainder), y)
    quotient = b.select(inexact, b.sub(quotient, 1), quotient)
    floor = b.floor(quotient)
    floor = b.select(b.gt(b.sub(quotient, floor), 0.5), b.add(floor, 1), floor)
    zero = b.select(signbit(b, ratio), -0.0, b.full(ratio.shape, 0.0, ratio.dtype))
    return b.select(b.eq(y, 0), ratio, b.select(b.eq(quotient, 0), zero, floor))


@emitter("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    left, right = b.together(*in_opmath(b, out, x, y))
    result = b.rem(left, right)
    if result.dtype.is_signed:
        wrong = b.and_(b.ne(result, 0), _signs_differ(b, result, right))
        result = b.select(wrong, b.add(result, right), result)
    return finish(b, result, out)


@emitter("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    return finish(b, b.rem(*in_opmath(b, out, x, y)), out)


# Powers


@emitter("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def pow_(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    return finish(b, _power(b, *in_opmath(b, out, x, y)), out)


def _power(b: Builder, x: Val, y: Val) -> Val:
    if is_complex(x.dtype):
        x, y = b.together(x, y)
        # exp(y log x) is NaN for a zero base; PyTorch has x**0 = 1 and 0**y = 0.
        at_zero = b.select(b.eq(y, 0), b.full(x.shape, 1, x.dtype), 0)
        return b.select(b.eq(x, 0), at_zero, b.pow(x, y))
    return b.pow(x, y) if is_float(x.dtype) else _integer_power(b, *b.together(x, y))


def _integer_power(b: Builder, x: Val, y: Val) -> Val:
    """Modulo 2**bits by squaring, until the largest exponent has no bits left.

    XLA's power of integers sees six bits of the exponent, and takes a negative one for zero.
    """

    def busy(_base: Val, rest: Val, _result: Val) -> Val:
        return b.reduce_or(b.ne(rest, 0))

    def step(base: Val, rest: Val, result: Val) -> list[Val]:
        with_base = b.select(_is_odd(b, rest), b.mul(result, base), result)
        return [b.mul(base, base), b.div(rest, 2), with_base]

    one = b.full(x.shape, 1, x.dtype)
    if not x.dtype.is_signed:
        return b.while_([x, y, one], busy, step)[2]
    result = b.while_([x, b.max(y, 0), one], busy, step)[2]
    # 1 / x**-y: zero but for 1 and -1, and PyTorch has zero for 0 too.
    of_minus_one = b.select(b.eq(x, -1), b.select(_is_odd(b, y), b.neg(one), one), 0)
    return b.select(b.lt(y, 0), b.select(b.eq(x, 1), one, of_minus_one), result)


def _is_odd(b: Builder, x: Val) -> Val:
    return b.ne(b.rem(x, 2), 0)


@emitter("aten.pow.Tensor_Scalar", static=("exponent",))
def pow_scalar(b: Builder, out: Any, x: Val, exponent: Number) -> Val:
    (base,) = in_opmath(b, out, x)
    special = _SPECIAL_POWERS.get(exponent)
    if special is not None and (exponent in (0, 1, 2, 3) or is_float(base.dtype)):
        return finish(b, special(b, base), out)
    return finish(b, _power(b, base, b.full((), exponent, base.dtype)), out)


_SPECIAL_POWERS: dict[Number, Callable[[Builder, Val], Val]] = {
    0: lambda b, x: b.full(x.shape, 1, x.dtype),
    1: lambda b, x: x,
    2: lambda b, x: b.mul(x, x),
    3: lambda b, x: b.mul(b.mul(x, x), x),
    0.5: lambda b, x: b.sqrt(x),
    -0.5: lambda b, x: b.div(1.0, b.sqrt(x)),
    -1: lambda b, x: b.div(1.0, x),
    -2: lambda b, x: b.div(1.0, b.mul(x, x)),
}


# Extrema


@emitter("aten.maximum")
def maximum(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return finish(b, b.max(operand(b, x, out.dtype), operand(b, y, out.dtype)), out)


@emitter("aten.minimum")
def minimum(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return finish(b, b.min(operand(b, x, out.dtype), operand(b, y, out.dtype)), out)


def _without_nan(b: Builder, x: Val, y: Val, chosen: Val) -> Val:
    return b.select(b.isnan(x), y, b.select(b.isnan(y), x, chosen))


@emitter("aten.fmax")
def fmax(b: Builder, out: Any, x: Val, y: Val) -> Val:
    left, right = b.together(b.convert(x, out.dtype), b.convert(y, out.dtype))
    return finish(b, _without_nan(b, left, right, b.max(left, right)), out)


@emitter("aten.fmin")
def fmin(b: Builder, out: Any, x: Val, y: Val) -> Val:
    left, right = b.together(b.convert(x, out.dtype), b.convert(y, out.dtype))
    return finish(b, _without_nan(b, left, right, b.min(left, right)), out)


# Functions of two floats


@emitter("aten.atan2")
def atan2(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return finish(b, b.atan2(*in_opmath(b, out, x, y)), out)


@emitter("aten.hypot")
def hypot(b: Builder, out: Any, x: Val, y: Val) -> Val:
    left, right = b.together(*(b.abs(value) for value in in_opmath(b, out, x, y)))
    large, small = b.max(left, right), b.min(left, right)
    ratio = b.select(b.eq(large, 0), 0, b.div(small, large))
    result = b.mul(large, b.sqrt(b.add(b.mul(ratio, ratio), 1)))
    infinite = b.or_(b.eq(left, float("inf")), b.eq(right, float("inf")))
    return finish(b, b.select(infinite, float("inf"), result), out)


@emitter("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(b: Builder, out: Any, x: Val, y: Arg) -> Val:
    magnitude = b.abs(b.convert(x, out.dtype))
    return finish(
        b, b.select(signbit(b, tensor(b, y, out.dtype)), b.neg(magnitude), magnitude), out
    )


@emitter("aten.nextafter")
def nextafter(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return finish(b, b.chlo("next_after", operand(b, x, out.dtype), operand(b, y, out.dtype)), out)


def _log_of_sum(b: Builder, out: Any, x: Val, y: Val, scale: float) -> Val:
    """log(exp(scale x) + exp(scale y)) / scale"""
    left, right = b.together(*in_opmath(b, out, x, y))
    if is_complex(left.dtype):
        raise LoweringError("aten.logaddexp", "complex numbers")
    gap = b.neg(b.abs(b.sub(left, right)))
    tail = b.log1p(b.exp(b.mul(gap, scale)))
    result = b.add(b.max(left, right), b.div(tail, scale))
    same_infinity = b.and_(b.eq(left, right), b.eq(b.abs(left), float("inf")))
    return finish(b, b.select(same_infinity, left, result), out)


@emitter("aten.logaddexp")
def logaddexp(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return _log_of_sum(b, out, x, y, 1.0)


@emitter("aten.logaddexp2")
def logaddexp2(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return _log_of_sum(b, out, x, y, 0.6931471805599453)


def _zero_times(b: Builder, out: Any, x: Arg, y: Arg, function: Callable[[Val], Val]) -> Val:
    """x * function(y), 0 where x is 0, NaN where y is."""
    left, right = b.together(*in_opmath(b, out, x, y))
    product = b.select(b.eq(left, 0), 0, b.mul(left, function(right)))
    return finish(b, b.select(b.isnan(right), right, product), out)


@emitter("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other")
def xlogy(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    return _zero_times(b, out, x, y, b.log)


@emitter(
    "aten.special_xlog1py", "aten.special_xlog1py.self_scalar", "aten.special_xlog1py.other_scalar"
)
def special_xlog1py(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    return _zero_times(b, out, x, y, b.log1p)


@emitter("aten.heaviside")
def heaviside(b: Builder, out: Any, x: Val, values: Val) -> Val:
    left, right = b.together(b.convert(x, out.dtype), b.convert(values, out.dtype))
    return finish(b, b.select(b.eq(left, 0), right, b.convert(b.gt(left, 0), out.dtype)), out)


# Integers


def _gcd(b: Builder, x: Val, y: Val) -> Val:
    """Euclid on all elements until the last has ended."""

    def busy(_x: Val, y: Val) -> Val:
        return b.reduce_or(b.ne(y, 0))

    def step(x: Val, y: Val) -> list[Val]:
        done = b.eq(y, 0)
        return [b.select(done, x, y), b.select(done, y, b.rem(x, b.select(done, 1, y)))]

    return b.abs(b.while_([x, y], busy, step)[0])


@emitter("aten.gcd")
def gcd(b: Builder, out: Any, x: Val, y: Val) -> Val:
    left, right = b.together(b.convert(x, out.dtype), b.convert(y, out.dtype))
    return finish(b, _gcd(b, left, right), out)


@emitter("aten.lcm")
def lcm(b: Builder, out: Any, x: Val, y: Val) -> Val:
    left, right = b.together(b.convert(x, out.dtype), b.convert(y, out.dtype))
    divisor = _gcd(b, left, right)
    product = b.abs(b.mul(b.div(left, b.select(b.eq(divisor, 0), 1, divisor)), right))
    return finish(b, product, out)


# Complex numbers from parts


@emitter("aten.complex")
def complex_(b: Builder, out: Any, real: Val, imag: Val) -> Val:
    if real.dtype is torch.float16:
        raise LoweringError("aten.complex", "StableHLO has no complex32")
    return finish(b, b.complex(real, imag), out)


@emitter("aten.polar")
def polar(b: Builder, out: Any, magnitude: Val, angle: Val) -> Val:
    return finish(b, b.complex(b.mul(magnitude, b.cos(angle)), b.mul(magnitude, b.sin(angle))), out)
