"""Elementwise functions of one tensor."""

import math
from collections.abc import Callable
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import is_complex, is_float, real_of
from torchneuron.lowering.emitting import finish, in_opmath, operand, signbit
from torchneuron.lowering.registry import emitter

Function = Callable[[Builder, Val], Val]


def _register(names: tuple[str, ...], function: Function) -> None:
    """``function`` in opmath; integers are converted to the float dtype of the result first."""

    @emitter(*(f"aten.{name}" for name in names))
    def unary(b: Builder, out: Any, x: Val) -> Val:
        return finish(b, function(b, *in_opmath(b, out, x)), out)


def _log_base(base: float) -> Function:
    scale = 1.0 / math.log(base)

    def log(b: Builder, x: Val) -> Val:
        value = b.log(x)
        if is_complex(x.dtype):
            # By parts: an infinite part times the scale's zero one would be NaN.
            return b.complex(b.mul(b.real(value), scale), b.mul(b.imag(value), scale))
        return b.mul(value, scale)

    return log


def _on_upper_side(b: Builder, value: Val, x: Val) -> Val:
    """``value`` with the sign of ``x``'s imaginary part, -0.0 too, on its own."""
    if not is_complex(x.dtype):
        return value
    size = b.abs(b.imag(value))
    return b.complex(b.real(value), b.select(signbit(b, b.imag(x)), b.neg(size), size))


def _half_exponentials(b: Builder, x: Val) -> tuple[Val, Val]:
    """exp(x) / 2 and exp(-x) / 2 without overflow where only exp(x) would, and exact to an ulp or
    two.
    """
    root = b.exp(b.mul(x, 0.5))
    half = b.mul(root, 0.5)
    return b.mul(half, root), b.div(0.25, b.mul(half, root))


def _cosh(b: Builder, x: Val) -> Val:
    if is_complex(x.dtype):
        return b.chlo("cosh", x)
    return b.add(*_half_exponentials(b, b.abs(x)))


def _sinh(b: Builder, x: Val) -> Val:
    if is_complex(x.dtype):
        return b.chlo("sinh", x)
    size = b.sub(*_half_exponentials(b, b.abs(x)))
    large = b.select(b.lt(x, 0), b.neg(size), size)
    return b.select(b.lt(b.abs(x), 1), b.chlo("sinh", x), large)


def _exp2(b: Builder, x: Val) -> Val:
    if is_complex(x.dtype):
        return b.exp(b.mul(x, math.log(2.0)))
    # Not exp(x ln 2): the product's rounding error would grow with x.
    return b.pow(2.0, x)


def _erfinv(b: Builder, x: Val) -> Val:
    """CHLO's, made exact to rounding by a step of Newton's method on the smaller of erf and erfc."""
    size = b.abs(x)
    first = b.chlo("erf_inv", size)
    excess = b.select(
        b.lt(size, 0.5),
        b.sub(b.erf(first), size),
        b.sub(b.sub(1, size), b.chlo("erfc", first)),
    )
    slope = b.mul(b.exp(b.neg(b.mul(first, first))), 2.0 / math.sqrt(math.pi))
    value = b.select(b.isfinite(first), b.sub(first, b.div(excess, slope)), first)
    return b.select(signbit(b, x), b.neg(value), value)


def _sinc(b: Builder, x: Val) -> Val:
    scaled = b.mul(x, math.pi)
    return b.select(b.eq(x, 0), 1, b.div(b.sin(scaled), scaled))


def _rsqrt(b: Builder, x: Val) -> Val:
    # XLA's rsqrt of complex numbers and of subnormals is less exact than this.
    return b.div(1, b.sqrt(x))


_FUNCTIONS: dict[tuple[str, ...], Function] = {
    ("acos", "arccos"): lambda b, x: b.chlo("acos", x),
    ("acosh", "arccosh"): lambda b, x: _on_upper_side(b, b.chlo("acosh", x), x),
    ("asin", "arcsin"): lambda b, x: b.chlo("asin", x),
    ("asinh", "arcsinh"): lambda b, x: b.chlo("asinh", x),
    ("atan", "arctan"): lambda b, x: b.chlo("atan", x),
    ("atanh", "arctanh"): lambda b, x: b.chlo("atanh", x),
    ("cos",): lambda b, x: b.cos(x),
    ("cosh",): _cosh,
    ("deg2rad",): lambda b, x: b.mul(x, math.pi / 180.0),
    ("erf", "special_erf"): lambda b, x: b.erf(x),
    ("erfc", "special_erfc"): lambda b, x: b.chlo("erfc", x),
    ("erfinv", "special_erfinv"): _erfinv,
    ("exp",): lambda b, x: b.exp(x),
    ("exp2", "special_exp2"): _exp2,
    ("expm1", "special_expm1"): lambda b, x: b.expm1(x),
    ("lgamma",): lambda b, x: b.chlo("lgamma", x),
    ("log",): lambda b, x: b.log(x),
    ("log10",): _log_base(10.0),
    ("log1p", "special_log1p"): lambda b, x: b.log1p(x),
    ("log2",): _log_base(2.0),
    ("rad2deg",): lambda b, x: b.mul(x, 180.0 / math.pi),
    ("reciprocal",): lambda b, x: b.div(1, x),
    ("rsqrt",): _rsqrt,
    ("sigmoid", "special_expit"): lambda b, x: b.logistic(x),
    ("sin",): lambda b, x: b.sin(x),
    ("sinc", "special_sinc"): _sinc,
    ("sinh",): _sinh,
    ("sqrt",): lambda b, x: _on_upper_side(b, b.sqrt(x), x),
    ("square",): lambda b, x: b.mul(x, x),
    ("tan",): lambda b, x: b.chlo("tan", x),
    ("tanh",): lambda b, x: b.tanh(x),
}

for _names, _function in _FUNCTIONS.items():
    _register(_names, _function)


# Signs and magnitudes


@emitter("aten.abs", "aten.absolute")
def abs_(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.abs(x), out)


@emitter("aten.neg", "aten.negative")
def neg(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.neg(x), out)


@emitter("aten.positive")
def positive(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, x, out)


@emitter("aten.sign", "aten.sgn")
def sign(b: Builder, out: Any, x: Val) -> Val:
    if x.dtype is torch.bool:
        return finish(b, x, out)
    value = b.sign(x)
    # PyTorch's sign of NaN is 0.
    if is_float(x.dtype):
        value = b.select(b.isnan(x), 0, value)
    return finish(b, value, out)


@emitter("aten.signbit")
def signbit_(b: Builder, out: Any, x: Val) -> Val:
    if x.dtype is torch.bool:
        return b.full(x.shape, False, torch.bool)
    return finish(b, signbit(b, x), out)


@emitter("aten.angle")
def angle(b: Builder, out: Any, x: Val) -> Val:
    if is_complex(x.dtype):
        return finish(b, b.atan2(b.imag(x), b.real(x)), out)
    (value,) = in_opmath(b, out, x)
    result = b.select(b.lt(value, 0), math.pi, b.full(value.shape, 0, value.dtype))
    return finish(b, b.select(b.isnan(value), value, result), out)


@emitter("aten.relu")
def relu(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.max(x, 0), out)


# Rounding; integers stay as they are


def _register_rounding(name: str, function: Function) -> None:
    @emitter(f"aten.{name}")
    def rounding(b: Builder, out: Any, x: Val) -> Val:
        return finish(b, function(b, *in_opmath(b, out, x)) if is_float(x.dtype) else x, out)


_register_rounding("floor", lambda b, x: b.floor(x))
_register_rounding("ceil", lambda b, x: b.ceil(x))
_register_rounding("trunc", lambda b, x: b.trunc(x))
_register_rounding("fix", lambda b, x: b.trunc(x))
_register_rounding("round", lambda b, x: b.round_even(x))
_register_rounding("frac", lambda b, x: b.sub(x, b.trunc(x)))


@emitter("aten.round.decimals")
def round_decimals(b: Builder, out: Any, x: Val, decimals: int) -> Val:
    if not is_float(x.dtype):
        return x
    (value,) = in_opmath(b, out, x)
    scale = float(10 ** abs(decimals))
    if decimals >= 0:
        return finish(b, b.div(b.round_even(b.mul(value, scale)), scale), out)
    return finish(b, b.mul(b.round_even(b.div(value, scale)), scale), out)


# With parameters


@emitter("aten.logit", "aten.special_logit")
def logit(b: Builder, out: Any, x: Val, eps: Val | Number | None = None) -> Val:
    (value,) = in_opmath(b, out, x)
    if eps is not None:
        low = b.scalar(eps, value.dtype)
        value = b.clamp(low, value, b.sub(1, low))
    return finish(b, b.log(b.div(value, b.sub(1, value))), out)


@emitter("aten.nan_to_num", static=("nan", "posinf", "neginf"))
def nan_to_num(
    b: Builder,
    out: Any,
    x: Val,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Val:
    if is_complex(x.dtype):
        parts = [_finite(b, part, nan, posinf, neginf) for part in (b.real(x), b.imag(x))]
        return finish(b, b.complex(*parts), out)
    return finish(b, _finite(b, x, nan, posinf, neginf) if is_float(x.dtype) else x, out)


def _finite(
    b: Builder, x: Val, nan: float | None, posinf: float | None, neginf: float | None
) -> Val:
    limits = torch.finfo(real_of(x.dtype))
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    result = b.select(b.eq(x, float("inf")), high, x)
    result = b.select(b.eq(x, float("-inf")), low, result)
    return b.select(b.isnan(x), 0.0 if nan is None else nan, result)


@emitter("aten.threshold")
def threshold(b: Builder, out: Any, x: Val, threshold: Val | Number, value: Val | Number) -> Val:
    low = operand(b, threshold, x.dtype)
    return finish(b, b.select(b.le(x, low), operand(b, value, x.dtype), x), out)
