"""The Hurwitz zeta function and the derivatives of log gamma that come of it."""

import math
from typing import Any

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.emitting import finish, in_opmath, signbit
from torchneuron.lowering.registry import emitter


@emitter("aten.special_zeta", "aten.special_zeta.other_scalar", "aten.special_zeta.self_scalar")
def special_zeta(b: Builder, out: Any, x: Val | Number, q: Val | Number) -> Val:
    return finish(b, _zeta(b, *b.together(*in_opmath(b, out, x, q))), out)


@emitter("aten.digamma", "aten.special_digamma")
def digamma(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, _digamma(b, *in_opmath(b, out, x)), out)


@emitter("aten.polygamma")
def polygamma(b: Builder, out: Any, n: int, x: Val) -> Val:
    (value,) = in_opmath(b, out, x)
    if n == 0:
        return finish(b, _digamma(b, value), out)
    if n == 1:
        return finish(b, _trigamma(b, value), out)
    factor = float(math.factorial(n)) * (1 if n % 2 else -1)
    zeta = _zeta(b, b.full(value.shape, n + 1, value.dtype), value)
    return finish(b, b.mul(zeta, factor), out)


def _zeta(b: Builder, x: Val, q: Val) -> Val:
    """Sum of (q + k)^-x over k >= 0.

    For negative q, where x is whole, the terms of negative base are those of two such sums with a
    positive q: (-1)^x (zeta(x, r) - zeta(x, 1 - q)), with r the fraction of -q; what follows
    them is zeta(x, 1 - r).
    """
    negative = b.lt(q, 0)
    fraction = b.sub(b.neg(q), b.floor(b.neg(q)))
    positive = b.chlo("zeta", x, b.select(negative, b.sub(1, fraction), q))
    # Any q > 0 will do where these are not needed.
    near = b.chlo("zeta", x, b.select(negative, fraction, 1))
    far = b.chlo("zeta", x, b.select(negative, b.sub(1, q), 1))
    odd = b.ne(b.mul(b.floor(b.mul(x, 0.5)), 2), x)
    # In this order: of odd powers the near terms may cancel to nothing.
    value = b.select(odd, b.add(b.sub(positive, near), far), b.sub(b.add(positive, near), far))
    value = b.select(negative, b.select(b.eq(b.floor(x), x), value, math.nan), positive)
    value = b.select(b.and_(b.le(q, 0), b.eq(b.floor(q), q)), math.inf, value)
    value = b.select(b.lt(x, 1), math.nan, value)
    return b.select(b.eq(x, 1), math.inf, value)


def _digamma(b: Builder, x: Val) -> Val:
    # At its poles PyTorch gives -inf for 0.0, inf for -0.0, NaN for negative integers.
    pole = b.select(signbit(b, x), float("inf"), b.full(x.shape, float("-inf"), x.dtype))
    return b.select(b.eq(x, 0), pole, b.chlo("digamma", x))


def _trigamma(b: Builder, x: Val) -> Val:
    """Reflection to x >= 0.5, recurrence to x >= 6.5, asymptotic series."""
    reflect = b.lt(x, 0.5)
    sine = b.sin(b.mul(x, math.pi))
    mirrored = b.neg(b.div(math.pi * math.pi, b.mul(sine, sine)))
    total = b.select(reflect, mirrored, b.full(x.shape, 0, x.dtype))
    x = b.select(reflect, b.sub(1, x), x)
    for _ in range(6):
        total = b.add(total, b.div(1, b.mul(x, x)))
        x = b.add(x, 1)
    inverse = b.div(1, b.mul(x, x))
    series = b.sub(1.0 / 30, b.div(inverse, 42))
    series = b.mul(inverse, b.sub(1.0 / 6, b.mul(inverse, series)))
    series = b.div(b.add(b.add(b.div(0.5, x), 1), series), x)
    total = b.add(total, series)
    return b.select(reflect, b.neg(total), total)
