"""Incomplete gamma functions."""

import math
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitting import finish
from torchneuron.lowering.registry import emitter

_EPSILON = 1e-16
# Both expansions need most steps where x is about a: some ten times the root of a.
_MAX_STEPS = 10000


def _front(b: Builder, a: Val, x: Val) -> Val:
    """x^a exp(-x) / Gamma(a + 1)"""
    return b.exp(b.sub(b.sub(b.mul(a, b.log(x)), x), b.chlo("lgamma", b.add(a, 1.0))))


def _series(b: Builder, a: Val, x: Val, wanted: Val) -> Val:
    """Sum of x^n / ((a + 1) .. (a + n)) where ``wanted``."""

    def busy(n: Val, total: Val, term: Val, a: Val, x: Val) -> Val:
        return b.and_(b.reduce_or(b.gt(term, b.mul(total, _EPSILON))), b.lt(n, _MAX_STEPS))

    def step(n: Val, total: Val, term: Val, a: Val, x: Val) -> list[Val]:
        ahead = b.add(n, 1.0)
        following = b.mul(term, b.div(x, b.add(a, ahead)))
        return [ahead, b.add(total, following), following, a, x]

    one = b.full(a.shape, 1.0, a.dtype)
    start = [b.full((), 0.0, a.dtype), one, b.select(wanted, one, 0.0), a, b.select(wanted, x, 0.0)]
    return b.while_(start, busy, step)[1]


def _fraction(b: Builder, a: Val, x: Val, wanted: Val) -> Val:
    """Legendre's continued fraction of Gamma(a, x) exp(x) x^-a where ``wanted``, by Lentz's method."""

    def busy(n: Val, going: Val, *_: Val) -> Val:
        return b.and_(b.reduce_or(going), b.lt(n, _MAX_STEPS))

    def step(n: Val, going: Val, bottom: Val, c: Val, d: Val, value: Val, a: Val) -> list[Val]:
        ahead = b.add(n, 1.0)
        top = b.mul(b.sub(a, ahead), ahead)
        bottom = b.add(bottom, 2.0)
        d = b.div(1.0, b.add(b.mul(top, d), bottom))
        c = b.add(bottom, b.div(top, c))
        factor = b.mul(c, d)
        value = b.select(going, b.mul(value, factor), value)
        going = b.and_(going, b.gt(b.abs(b.sub(factor, 1.0)), _EPSILON * 2))
        return [ahead, going, bottom, c, d, value, a]

    bottom = b.select(wanted, b.sub(b.add(x, 1.0), a), 1.0)
    d = b.div(1.0, bottom)
    huge = b.full(a.shape, 1e300, a.dtype)
    start = [b.full((), 0.0, a.dtype), wanted, bottom, huge, d, d, a]
    return b.while_(start, busy, step)[5]


def _regularized(b: Builder, a: Val, x: Val) -> tuple[Val, Val]:
    """(P, Q), the lower and the upper function over Gamma(a), in float64."""
    regular = b.all_of(b.gt(a, 0), b.gt(x, 0), b.isfinite(a), b.isfinite(x))
    safe_a, safe_x = b.select(regular, a, 1.0), b.select(regular, x, 1.0)
    lower_side = b.lt(safe_x, b.add(safe_a, 1.0))
    front = _front(b, safe_a, safe_x)
    series = b.mul(front, _series(b, safe_a, safe_x, lower_side))
    fraction = b.mul(b.mul(front, safe_a), _fraction(b, safe_a, safe_x, b.not_(lower_side)))
    lower = b.select(lower_side, series, b.sub(1.0, fraction))
    upper = b.select(lower_side, b.sub(1.0, series), fraction)
    # At the borders all is on one side; PyTorch looks at them before it looks for NaNs.
    infinite_a, infinite_x = b.eq(a, math.inf), b.eq(x, math.inf)
    all_lower = b.or_(b.and_(b.eq(a, 0), b.gt(x, 0)), infinite_x)
    all_upper = b.or_(b.eq(x, 0), infinite_a)
    undefined = b.or_(
        b.or_(b.lt(a, 0), b.lt(x, 0)),
        b.or_(b.and_(b.eq(a, 0), b.not_(b.gt(x, 0))), b.and_(infinite_a, infinite_x)),
    )

    def bordered(value: Val, where_one: Val, where_zero: Val) -> Val:
        border = b.select(
            where_one, 1.0, b.select(where_zero, 0.0, b.full(a.shape, math.nan, a.dtype))
        )
        return b.select(undefined, math.nan, b.select(regular, value, border))

    return bordered(lower, all_lower, all_upper), bordered(upper, all_upper, all_lower)


def _operands(b: Builder, a: Val, x: Val) -> list[Val]:
    # In float64, because the exponent of the front factor cancels almost completely.
    return b.together(b.convert(a, torch.float64), b.convert(x, torch.float64))


@emitter("aten.igamma", "aten.special_gammainc")
def igamma(b: Builder, out: Any, a: Val, x: Val) -> Val:
    return finish(b, _regularized(b, *_operands(b, a, x))[0], out)


@emitter("aten.igammac", "aten.special_gammaincc")
def igammac(b: Builder, out: Any, a: Val, x: Val) -> Val:
    return finish(b, _regularized(b, *_operands(b, a, x))[1], out)
