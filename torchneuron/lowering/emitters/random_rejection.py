"""Gamma, Poisson and binomial numbers: a loop draws for all elements until each has one accepted.

Marsaglia and Tsang's method for gamma; Hoermann's transformed rejection (PTRS, BTRS) for Poisson and
binomial numbers of a mean from 10 on, inversion below. Discrete ones compute in float64, for their
log-likelihoods are small differences of large numbers. Parameters out of range give NaN: the values
are not known when the op is called, so that the error PyTorch's CPU raises for some cannot be.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitters.random import (
    normal_of_words,
    open01_of_words,
    random_open01,
)
from torchneuron.lowering.emitting import finish
from torchneuron.lowering.hlo.philox import philox, reserve
from torchneuron.lowering.registry import emitter, shape_rule

_F64, _U64 = torch.float64, torch.uint64
# Each attempt fails with a chance of at most 0.3: no element is left after so many.
_ATTEMPTS = 100
# From this mean on the discrete distributions are drawn by rejection.
_LARGE = 10.0
# Inversion of a mean below that ends long before.
_MAX_COUNT = 200

Propose = Callable[[Sequence[Val], Sequence[Val]], tuple[Val, Val]]


def _rejection(
    b: Builder,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    operands: Sequence[Val],
    propose: Propose,
) -> Val:
    """The first of ``propose(words, operands)``'s (value, accepted) that is accepted, by element.

    ``words`` are eight ui32, fresh for each attempt; ``operands`` have ``shape``.
    """
    elements = math.prod(shape)
    key, first = reserve(b, 2 * elements * _ATTEMPTS)

    def busy(i: Val, key: Val, counter: Val, value: Val, done: Val, *_: Val) -> Val:
        return b.and_(b.lt(i, _ATTEMPTS), b.not_(b.reduce_and(done)))

    def step(i: Val, key: Val, counter: Val, value: Val, done: Val, *operands: Val) -> list[Val]:
        position = b.reshape(b.iota((elements,), 0, _U64), shape)
        words: list[Val] = []
        for _ in range(2):
            words += philox(b, key, b.add(position, counter))
            counter = b.add(counter, elements)
        proposed, accepted = propose(words, operands)
        value = b.select(done, value, proposed)
        return [b.add(i, 1), key, counter, value, b.or_(done, accepted), *operands]

    start = [b.full((), 0, torch.int64), key, first]
    start += [b.full(shape, 0, dtype), b.full(shape, 0, torch.bool), *operands]
    return b.while_(start, busy, step)[3]


@shape_rule("aten._standard_gamma", "aten.binomial", "aten.poisson")
def _shapes(first: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.empty_like(first)


# Gamma


@emitter("aten._standard_gamma")
def standard_gamma(b: Builder, out: Any, alpha: Val, generator: Any = None) -> Val:
    dtype = opmath(alpha.dtype)
    if alpha.numel == 0:
        return alpha
    wide = b.convert(alpha, dtype)
    small = b.lt(wide, 1)
    d = b.sub(b.select(small, b.add(wide, 1), wide), 1.0 / 3.0)
    c = b.div(1.0, b.sqrt(b.mul(d, 9.0)))

    def propose(words: Sequence[Val], operands: Sequence[Val]) -> tuple[Val, Val]:
        d, c = operands
        x, u = normal_of_words(b, words, dtype), open01_of_words(b, words[4:], dtype)
        y = b.add(b.mul(c, x), 1.0)
        v = b.mul(b.mul(y, y), y)
        limit = b.add(b.mul(b.mul(x, x), 0.5), b.mul(d, b.add(b.sub(1.0, v), b.log(v))))
        return b.mul(d, v), b.and_(b.gt(v, 0), b.lt(b.log(u), limit))

    value = _rejection(b, wide.shape, dtype, [d, c], propose)
    # Gamma(a) is Gamma(a + 1) times a power of a uniform number.
    uniform = random_open01(b, wide.shape, dtype)
    value = b.select(small, b.mul(value, b.pow(uniform, b.div(1.0, wide))), value)
    value = b.max(value, torch.finfo(out.dtype).tiny)
    return finish(b, b.select(b.gt(wide, 0), value, math.nan), out)


# Poisson and binomial


def _inversion(b: Builder, first: Val, operands: Sequence[Val], ratio: Callable[..., Val]) -> Val:
    """How many of p(0) = ``first``, p(k + 1) = p(k) ``ratio(k, operands)`` a uniform number exceeds."""
    shape = first.shape

    def busy(k: Val, count: Val, u: Val, p: Val, total: Val, *_: Val) -> Val:
        return b.and_(b.lt(k, float(_MAX_COUNT)), b.reduce_or(b.gt(u, total)))

    def step(k: Val, count: Val, u: Val, p: Val, total: Val, *operands: Val) -> list[Val]:
        count = b.add(count, b.convert(b.gt(u, total), _F64))
        p = b.mul(p, ratio(k, operands))
        return [b.add(k, 1.0), count, u, p, b.add(total, p), *operands]

    u = random_open01(b, shape, _F64)
    start = [b.full((), 0, _F64), b.full(shape, 0, _F64), u, first, first, *operands]
    return b.while_(start, busy, step)[1]


def _hat(b: Builder, words: Sequence[Val], scale: Val, a: Val, centre: Val) -> tuple[Val, Val, Val]:
    """(k, v, s) of the transformed rejection: a proposal, a uniform number, the distance to the hat's edge."""
    u = b.sub(open01_of_words(b, words, _F64), 0.5)
    v = open01_of_words(b, words[2:], _F64)
    s = b.sub(0.5, b.abs(u))
    k = b.floor(b.add(b.mul(b.add(b.div(b.mul(a, 2.0), s), scale), u), centre))
    return k, v, s


@emitter("aten.poisson")
def poisson(b: Builder, out: Any, rate: Val, generator: Any = None) -> Val:
    if rate.numel == 0:
        return rate
    wide = b.convert(rate, _F64)
    large = b.ge(wide, _LARGE)
    few = b.select(large, 1.0, wide)
    small = _inversion(b, b.exp(b.neg(few)), [few], lambda k, now: b.div(now[0], b.add(k, 1.0)))
    many = b.select(large, wide, _LARGE)

    def propose(words: Sequence[Val], operands: Sequence[Val]) -> tuple[Val, Val]:
        (mean,) = operands
        scale = b.add(b.mul(b.sqrt(mean), 2.53), 0.931)
        a = b.sub(b.mul(scale, 0.02483), 0.059)
        k, v, s = _hat(b, words, scale, a, b.add(mean, 0.43))
        inside = b.sub(0.9277, b.div(3.6224, b.sub(scale, 2.0)))
        height = b.add(b.div(1.1328, b.sub(scale, 3.4)), 1.1239)
        left = b.log(b.div(b.mul(v, height), b.add(b.div(a, b.mul(s, s)), scale)))
        likelihood = b.sub(b.mul(k, b.log(mean)), b.add(mean, b.chlo("lgamma", b.add(k, 1.0))))
        sure = b.and_(b.ge(s, 0.07), b.le(v, inside))
        return k, b.or_(sure, b.and_(b.ge(k, 0), b.le(left, likelihood)))

    value = b.select(large, _rejection(b, wide.shape, _F64, [many], propose), small)
    return finish(b, b.select(b.ge(wide, 0), value, math.nan), out)


@emitter("aten.binomial")
def binomial(b: Builder, out: Any, count: Val, prob: Val, generator: Any = None) -> Val:
    if count.numel == 0:
        return count
    n, p = b.convert(count, _F64), b.broadcast_to(b.convert(prob, _F64), count.shape)
    # The rarer of the two outcomes is counted.
    q = b.min(p, b.sub(1.0, p))
    large = b.ge(b.mul(n, q), _LARGE)
    few, rare = b.select(large, 1.0, n), b.select(large, 0.5, q)
    odds = b.div(rare, b.sub(1.0, rare))
    first = b.exp(b.mul(few, b.log1p(b.neg(rare))))
    small = _inversion(
        b,
        first,
        [few, odds],
        lambda k, now: b.mul(b.div(b.sub(now[0], k), b.add(k, 1.0)), now[1]),
    )
    # Where this is not needed, any values with a mean of 10 will do.
    operands = [b.select(large, n, 2 * _LARGE), b.select(large, q, 0.5)]
    value = _rejection(b, n.shape, _F64, operands, lambda words, now: _btrs(b, words, *now))
    value = b.select(large, value, small)
    value = b.select(b.gt(p, 0.5), b.sub(n, value), value)
    valid = b.all_of(b.ge(n, 0), b.ge(p, 0), b.le(p, 1))
    return finish(b, b.select(valid, value, math.nan), out)


def _btrs(b: Builder, words: Sequence[Val], n: Val, q: Val) -> tuple[Val, Val]:
    deviation = b.sqrt(b.mul(b.mul(n, q), b.sub(1.0, q)))
    scale = b.add(b.mul(deviation, 2.53), 1.15)
    a = b.add(b.sub(b.mul(scale, 0.0248), 0.0873), b.mul(q, 0.01))
    k, v, s = _hat(b, words, scale, a, b.add(b.mul(n, q), 0.5))
    height = b.mul(b.add(b.div(5.1, scale), 2.83), deviation)
    left = b.log(b.div(b.mul(v, height), b.add(b.div(a, b.mul(s, s)), scale)))
    mode = b.floor(b.mul(b.add(n, 1.0), q))

    def ways(k: Val) -> Val:
        """log k! (n - k)!"""
        return b.add(b.chlo("lgamma", b.add(k, 1.0)), b.chlo("lgamma", b.add(b.sub(n, k), 1.0)))

    inside = b.and_(b.ge(k, 0), b.le(k, n))
    k = b.clamp(0.0, k, n)
    odds = b.log(b.div(q, b.sub(1.0, q)))
    likelihood = b.add(b.sub(ways(mode), ways(k)), b.mul(b.sub(k, mode), odds))
    sure = b.and_(b.ge(s, 0.07), b.le(v, b.sub(0.92, b.div(4.2, scale))))
    return k, b.and_(inside, b.or_(sure, b.le(left, likelihood)))
