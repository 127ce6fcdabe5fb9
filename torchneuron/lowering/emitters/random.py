"""Random numbers. Parameters of the distributions are operands, so that one program serves them all."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import is_complex, is_float, opmath, real_of
from torchneuron.lowering.emitters.scan import prefix_sum
from torchneuron.lowering.emitters.searching import search_sorted
from torchneuron.lowering.emitters.sorting import top_positions
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.hlo.philox import random_words
from torchneuron.lowering.registry import emitter

Arg = Val | Number
_U32, _U64 = torch.uint32, torch.uint64

# Bits of a float's significand, the leading one included.
_DIGITS = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}


def random_bits64(b: Builder, shape: Sequence[int]) -> Val:
    """Uniform ui64."""
    low, high = random_words(b, shape, 2)
    return _join(b, low, high)


def _join(b: Builder, low: Val, high: Val) -> Val:
    return b.or_(b.convert(low, _U64), b.shift_left(b.convert(high, _U64), 32))


# Uniform floats


def uniform01(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> Val:
    """Multiples of 2**-digits in [0, 1), as many digits as ``dtype`` has, in its op-math dtype."""
    digits = _DIGITS[dtype]
    if dtype is torch.float64:
        return b.mul(
            b.convert(b.shift_right(random_bits64(b, shape), 64 - digits), dtype), 2.0**-digits
        )
    (word,) = random_words(b, shape)
    return b.mul(b.convert(b.shift_right(word, 32 - digits), torch.float32), 2.0**-digits)


def _open01(b: Builder, bits: Val, dtype: torch.dtype) -> Val:
    """Bits (ui32 for float32, ui64 for float64) as floats above 0, below 1, and fine near 0."""
    width = 8 * bits.dtype.itemsize
    value = b.mul(b.add(b.convert(bits, dtype), 0.5), 2.0**-width)
    return b.min(value, 1 - 2.0 ** -_DIGITS[dtype])


def random_open01(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> Val:
    """Uniform float32 or float64 above 0 and below 1."""
    count = 2 if dtype is torch.float64 else 1
    return open01_of_words(b, random_words(b, shape, count), dtype)


def open01_of_words(b: Builder, words: Sequence[Val], dtype: torch.dtype) -> Val:
    """The same of ui32 words: one for float32, two for float64."""
    bits = _join(b, words[0], words[1]) if dtype is torch.float64 else words[0]
    return _open01(b, bits, dtype)


@emitter("aten.uniform")
def uniform(b: Builder, out: Any, x: Val, *bounds: Arg, generator: Any = None, **named: Arg) -> Val:
    given = dict(zip(("from", "to"), bounds, strict=False)) | named
    wide = opmath(out.dtype)
    low, high = b.scalar(given.get("from", 0.0), wide), b.scalar(given.get("to", 1.0), wide)
    value = b.add(b.mul(uniform01(b, shape_of(out), out.dtype), b.sub(high, low)), low)
    rounded = b.convert(b.convert(value, out.dtype), wide)
    # Rounding may reach the upper bound, which is excluded.
    return finish(b, b.select(b.ge(rounded, high), low, rounded), out)


@emitter("aten.rand", "aten.rand.generator", "aten.rand_like", "aten.rand_like.generator")
def rand(b: Builder, out: Any, *_: Any, **__: Any) -> Val:
    return finish(b, uniform01(b, shape_of(out), out.dtype), out)


# Normal


def _cos_of_turns(b: Builder, word: Val) -> Val:
    """cos(2 pi t) in float32 of t = word / 2**32; the turn is reduced exactly, XLA's cosine is a slow libm call."""
    shifted = b.add(word, 1 << 29)
    quadrant = b.shift_right(shifted, 30)
    rest = b.sub(b.convert(b.and_(shifted, (1 << 30) - 1), torch.float32), float(1 << 29))
    angle = b.mul(rest, 2 * math.pi * 2.0**-32)
    square = b.mul(angle, angle)
    cosine = _even_series(b, square, 0, 12)
    sine = b.mul(angle, _even_series(b, square, 1, 12))
    value = b.select(b.eq(b.and_(quadrant, 1), 1), sine, cosine)
    return b.select(b.or_(b.eq(quadrant, 1), b.eq(quadrant, 2)), b.neg(value), value)


def _even_series(b: Builder, square: Val, first: int, last: int) -> Val:
    """Taylor series in the square of the angle: of cosine (first = 0), of sine over the angle (first = 1)."""
    powers = range(first, last, 2)
    terms = [(-1) ** (power // 2) / math.factorial(power) for power in powers]
    result = b.full(square.shape, terms[-1], square.dtype)
    for term in reversed(terms[:-1]):
        result = b.add(b.mul(result, square), term)
    return result


def standard_normal(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> Val:
    """Box-Muller in float64 or float32."""
    return normal_of_words(b, random_words(b, shape, 4), dtype)


def normal_of_words(b: Builder, words: Sequence[Val], dtype: torch.dtype) -> Val:
    """The same of four ui32 words."""
    radius = b.log(open01_of_words(b, words, dtype))
    if dtype is torch.float64:
        turns = b.mul(b.convert(b.shift_right(_join(b, words[2], words[3]), 11), dtype), 2.0**-53)
        direction = b.cos(b.mul(turns, 2 * math.pi))
    else:
        direction = _cos_of_turns(b, words[1])
    return b.mul(b.sqrt(b.mul(radius, -2.0)), direction)


def _normal(b: Builder, out: Any, mean: Arg, std: Arg) -> Val:
    """Normal numbers in ``out``'s dtype; mean and deviation are numbers or tensors that broadcast."""
    shape, wide = shape_of(out), opmath(out.dtype)
    if is_complex(wide):
        part = real_of(wide)
        # The variance is that of the complex number, half of it in either part.
        noise = [b.mul(standard_normal(b, shape, part), math.sqrt(0.5)) for _ in range(2)]
        value = b.complex(*noise)
    else:
        value = standard_normal(b, shape, wide)
    return finish(b, b.add(b.mul(value, _parameter(b, std, wide)), _parameter(b, mean, wide)), out)


def _parameter(b: Builder, x: Arg, dtype: torch.dtype) -> Val:
    return b.convert(x, dtype) if isinstance(x, Val) else b.full((), x, dtype)


@emitter("aten.normal_functional")
def normal_functional(
    b: Builder, out: Any, x: Val, mean: Arg = 0.0, std: Arg = 1.0, *, generator: Any = None
) -> Val:
    return _normal(b, out, mean, std)


@emitter("aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor")
def normal(b: Builder, out: Any, mean: Arg, std: Arg = 1.0, *, generator: Any = None) -> Val:
    return _normal(b, out, mean, std)


@emitter("aten.normal.float_float")
def normal_of_size(b: Builder, out: Any, mean: Arg, std: Arg, size: Sequence[int], **_: Any) -> Val:
    return _normal(b, out, mean, std)


@emitter("aten.randn", "aten.randn.generator", "aten.randn_like", "aten.randn_like.generator")
def randn(b: Builder, out: Any, *_: Any, **__: Any) -> Val:
    return _normal(b, out, 0.0, 1.0)


@emitter("aten.log_normal")
def log_normal(
    b: Builder, out: Any, x: Val, mean: Arg = 1.0, std: Arg = 2.0, *, generator: Any = None
) -> Val:
    wide = opmath(out.dtype)
    value = standard_normal(b, shape_of(out), wide)
    exponent = b.add(b.mul(value, b.scalar(std, wide)), b.scalar(mean, wide))
    return finish(b, b.exp(exponent), out)


# Integers


def integers(b: Builder, shape: Sequence[int], low: int, span: int | Val) -> Val:
    """Uniform int64 in [low, low + span), a span of at most 2**64 (a Val: 2**32).

    That is low + span * (64 random bits) / 2**64: without the bias and the cost of a remainder.
    """
    first, second = (b.convert(word, _U64) for word in random_words(b, shape, 2))
    if isinstance(span, Val):
        value = _high_product(b, first, second, b.convert(span, _U64), None)
    elif span <= 1 << 32:
        value = _high_product(b, first, second, span, None)
    elif span < 1 << 64:
        value = _high_product(b, first, second, span & 0xFFFFFFFF, span >> 32)
    else:
        value = b.or_(first, b.shift_left(second, 32))
    signed = b.bitcast_convert(value, torch.int64)
    return b.add(signed, low) if low else signed


def _high_product(b: Builder, low: Val, high: Val, by_low: int | Val, by_high: int | None) -> Val:
    """The upper 64 of 128 bits of a product; its factors come as halves, ``by_high`` None being 0."""
    middle = b.add(b.mul(high, by_low), b.shift_right(b.mul(low, by_low), 32))
    if by_high is None:
        return b.shift_right(middle, 32)
    crossed = b.mul(low, by_high)
    carry = b.shift_right(b.add(b.and_(middle, 0xFFFFFFFF), b.and_(crossed, 0xFFFFFFFF)), 32)
    upper = b.add(b.shift_right(middle, 32), b.shift_right(crossed, 32))
    return b.add(b.add(b.mul(high, by_high), upper), carry)


def _largest(dtype: torch.dtype) -> int:
    """What ``random_`` reaches: the largest integer, or the largest up to which floats have no gaps."""
    if is_float(dtype):
        return 1 << _DIGITS[dtype]
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


@emitter("aten.random.from")
def random_from(
    b: Builder, out: Any, x: Val, *bounds: int | None, generator: Any = None, **named: int | None
) -> Val:
    given = dict(zip(("from", "to"), bounds, strict=False)) | named
    low, high = given["from"], given.get("to")
    assert low is not None
    if high is None:
        every = low == torch.iinfo(torch.int64).min
        span = 1 << 64 if every else _largest(out.dtype) - low + 1
    else:
        span = high - low
    return finish(b, integers(b, shape_of(out), low, span), out)


@emitter("aten.random.to")
def random_to(b: Builder, out: Any, x: Val, to: int, *, generator: Any = None) -> Val:
    return finish(b, integers(b, shape_of(out), 0, to), out)


@emitter("aten.random")
def random(b: Builder, out: Any, x: Val, *, generator: Any = None) -> Val:
    return finish(b, integers(b, shape_of(out), 0, _largest(out.dtype) + 1), out)


@emitter("aten.randint", "aten.randint.generator")
def randint(b: Builder, out: Any, high: int, size: Sequence[int], **_: Any) -> Val:
    return finish(b, integers(b, shape_of(out), 0, high), out)


@emitter("aten.randint.low", "aten.randint.low_generator")
def randint_low(b: Builder, out: Any, low: int, high: int, size: Sequence[int], **_: Any) -> Val:
    return finish(b, integers(b, shape_of(out), low, high - low), out)


@emitter("aten.randint_like", "aten.randint_like.generator")
def randint_like(b: Builder, out: Any, x: Val, high: int, **_: Any) -> Val:
    return finish(b, integers(b, shape_of(out), 0, high), out)


@emitter("aten.randint_like.Tensor", "aten.randint_like.Tensor_generator")
def randint_like_tensor(b: Builder, out: Any, x: Val, high: Val, **_: Any) -> Val:
    span = b.scalar(b.convert(high, torch.int64), torch.int64)
    return finish(b, integers(b, shape_of(out), 0, span), out)


@emitter("aten.randint_like.low_dtype", "aten.randint_like.low_generator_dtype")
def randint_like_low(b: Builder, out: Any, x: Val, low: int, high: int, **_: Any) -> Val:
    return finish(b, integers(b, shape_of(out), low, high - low), out)


@emitter("aten.randperm", "aten.randperm.generator")
def randperm(b: Builder, out: Any, n: int, **_: Any) -> Val:
    """Sorts random numbers that carry their position in the low bits; ties are as good as impossible."""
    if n == 0:
        return b.full((0,), 0, out.dtype)
    index_bits = max(1, (n - 1).bit_length())
    mask = (1 << index_bits) - 1
    bits = b.and_(random_bits64(b, (n,)), (1 << 64) - 1 - mask)
    packed = b.or_(bits, b.iota((n,), 0, _U64))
    ordered = b.sort([packed], 0, lambda left, right: b.lt(left, right), stable=False)[0]
    return finish(b, b.bitcast_convert(b.and_(ordered, mask), torch.int64), out)


# Bernoulli and waiting times


@emitter("aten.bernoulli.p")
def bernoulli_p(b: Builder, out: Any, x: Val, p: Arg, *, generator: Any = None) -> Val:
    (word,) = random_words(b, shape_of(out))
    chance = b.scalar(p, torch.float64)
    limit = b.convert(b.min(b.mul(chance, 2.0**32), 2.0**32 - 1), _U32)
    return finish(b, b.or_(b.lt(word, limit), b.ge(chance, 1.0)), out)


@emitter("aten.bernoulli.Tensor")
def bernoulli_tensor(b: Builder, out: Any, x: Val, p: Val, *, generator: Any = None) -> Val:
    dtype = torch.float64 if p.dtype is torch.float64 else torch.float32
    return finish(b, b.lt(uniform01(b, shape_of(out), dtype), b.convert(p, dtype)), out)


@emitter("aten.bernoulli")
def bernoulli(b: Builder, out: Any, x: Val, *, generator: Any = None) -> Val:
    return bernoulli_tensor(b, out, x, x)


def standard_exponential(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> Val:
    """Positive, finite numbers of rate 1 in float64 or float32."""
    return b.neg(b.log1p(b.neg(random_open01(b, shape, dtype))))


@emitter("aten.exponential")
def exponential(b: Builder, out: Any, x: Val, lambd: Arg = 1.0, *, generator: Any = None) -> Val:
    wide = opmath(out.dtype)
    value = b.div(standard_exponential(b, shape_of(out), wide), b.scalar(lambd, wide))
    if out.dtype is torch.float16:
        # The smallest would round to 0.
        value = b.max(value, torch.finfo(torch.float16).smallest_normal * 2.0**-10)
    return finish(b, value, out)


@emitter("aten.geometric")
def geometric(b: Builder, out: Any, x: Val, p: Arg, *, generator: Any = None) -> Val:
    wide = torch.float64 if out.dtype is torch.float64 else torch.float32
    log_u = b.log(random_open01(b, shape_of(out), wide))
    trials = b.ceil(b.div(log_u, b.log1p(b.neg(b.scalar(p, wide)))))
    return finish(b, b.max(trials, 1.0), out)


@emitter("aten.cauchy")
def cauchy(
    b: Builder, out: Any, x: Val, median: Arg = 0.0, sigma: Arg = 1.0, *, generator: Any = None
) -> Val:
    wide = opmath(out.dtype)
    half_turns = b.sub(random_open01(b, shape_of(out), wide), 0.5)
    value = b.unary("tan", b.mul(half_turns, math.pi))
    return finish(b, b.add(b.mul(value, b.scalar(sigma, wide)), b.scalar(median, wide)), out)


# Sampling of categories


@emitter("aten.multinomial")
def multinomial(
    b: Builder,
    out: Any,
    x: Val,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Any = None,
) -> Val:
    shape = shape_of(out)
    if 0 in shape or x.numel == 0:
        return b.full(shape, 0, torch.int64)
    wide = opmath(x.dtype)
    weights = b.reshape(b.convert(x, wide), (x.numel // x.shape[-1], x.shape[-1]))
    if replacement and num_samples > 1:
        return b.reshape(_with_replacement(b, weights, num_samples), shape)
    # A race: a category's time to its first event has its weight as rate, the first to come are the sample.
    race = b.div(weights, standard_exponential(b, weights.shape, wide))
    return b.reshape(top_positions(b, race, num_samples, largest=True), shape)


def _with_replacement(b: Builder, weights: Val, count: int) -> Val:
    rows, size = weights.shape
    sums = prefix_sum(b, weights, 1)
    total = b.slice_dim(sums, 1, size - 1, size)
    wanted = b.mul(uniform01(b, (rows, count), weights.dtype), total)
    found = search_sorted(b, sums, wanted, right=True)
    # Rounding may reach the total: then it is the last category that can be.
    possible = b.select(b.gt(weights, 0), b.iota(weights.shape, 1), 0)
    return b.min(found, b.reduce_max(possible, [1], keepdim=True))
