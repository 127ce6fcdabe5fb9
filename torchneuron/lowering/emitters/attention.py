"""Scaled dot-product attention in one program, and its gradient.

Shapes: B batch, G key heads, R query heads for each, L queries, S keys, E and V the head sizes of keys and values.
Queries are taken in blocks, so that the scores of a long sequence need not all exist at once, and so that causal
attention computes no score of keys that a block cannot see.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitters.dropout import kept_scale, uniform
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.hlo.philox import WORDS, philox, random_words
from torchneuron.lowering.registry import emitter

_U64 = torch.uint64

# Scores of one block, in elements; at most so many blocks, for each lengthens the program.
_BLOCK_SCORES = 1 << 26
_CAUSAL_BLOCK = 256
_MAX_BLOCKS = 16

_NEGATIVE_INFINITY = float("-inf")


class _Dropout:
    """Draws which scores are kept: forward from fresh random bits, backward from the same bits."""

    def __init__(self, b: Builder, p: float, seed: Val | None = None, offset: Val | None = None):
        self._b = b
        self._p = p
        self._seed = seed
        self._offset = offset
        self._used = 0
        self._start = b.rng_offset

    def __bool__(self) -> bool:
        return self._p > 0

    def factor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Val:
        """What the probabilities of the next block are multiplied by: 0 or 1 / (1 - p)."""
        b = self._b
        kept = b.ge(uniform(b, self._bits(shape)), self._p)
        return b.select(kept, kept_scale(b, self._p, dtype), b.full(shape, 0, dtype))

    def _bits(self, shape: tuple[int, ...]) -> Val:
        b, elements = self._b, math.prod(shape)
        if self._seed is None or self._offset is None:
            return random_words(b, shape)[0]
        if elements == 0:
            return b.full(shape, 0, torch.uint32)
        seed, offset = (b.bitcast_convert(x, _U64) for x in (self._seed, self._offset))
        first = b.div(b.add(offset, self._used), WORDS)
        self._used += WORDS * elements
        position = b.reshape(b.iota((elements,), 0, _U64), shape)
        return philox(b, seed, b.add(position, first))[0]

    def philox(self) -> tuple[Val, Val]:
        """(seed, offset) of the first bits drawn, as int64 scalars."""
        b = self._b
        if b.rng_operand is None or not self:
            zero = b.full((), 0, torch.int64)
            return zero, zero
        seed = b.slice(b.rng_operand, [0], [1])
        offset = b.add(b.slice(b.rng_operand, [1], [2]), self._start)
        return tuple(b.reshape(b.bitcast_convert(v, torch.int64), ()) for v in (seed, offset))  # type: ignore[return-value]


class _Attention:
    """The operands in the shapes above, and the scores of a block of queries."""

    def __init__(
        self,
        b: Builder,
        query: Val,
        key: Val,
        value: Val,
        bias: Val | None,
        causal: bool,
        scale: float | None,
    ):
        self.b = b
        self.key, self.value = (self._four(x) for x in (key, value))
        batch, heads, self.keys, _ = self.key.shape
        query = self._four(query)
        self.queries = query.shape[2]
        self.leading = (batch, heads, query.shape[1] // heads)
        self.query = b.reshape(query, (*self.leading, *query.shape[2:]))
        self.bias = self._five_of_bias(bias) if bias is not None else None
        self.causal = causal
        self.scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        self.dtype = opmath(query.dtype)

    def _four(self, x: Val) -> Val:
        return self.b.unsqueeze(x, 0) if x.ndim == 3 else x

    def _five_of_bias(self, bias: Val) -> Val:
        """(B or 1, G or 1, R or 1, L or 1, S or 1)"""
        sizes = (1,) * (4 - bias.ndim) + bias.shape
        heads = self.leading[1:] if sizes[1] > 1 else (1, 1)
        return self.b.reshape(bias, (sizes[0], *heads, *sizes[2:]))

    def five(self, x: Val) -> Val:
        """What has the shape of the output or of a query as (B, G, R, L, ...)."""
        return self.b.reshape(x, (*self.leading, self.queries, x.shape[-1]))

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """(first query, query after the last, number of keys seen) of each block."""
        scores = math.prod(self.leading) * self.queries * self.keys
        count = -(-scores // _BLOCK_SCORES)
        if self.causal:
            count = max(count, self.queries // _CAUSAL_BLOCK)
        size = max(-(-self.queries // max(1, min(count, _MAX_BLOCKS))), 1)
        for start in range(0, self.queries, size):
            stop = min(start + size, self.queries)
            yield start, stop, min(stop, self.keys) if self.causal else self.keys

    def part(self, x: Val, start: int, stop: int) -> Val:
        """A block of queries, or of what belongs to them."""
        return self.b.slice_dim(x, 3, start, stop)

    def seen(self, x: Val, keys: int) -> Val:
        """The first ``keys`` keys or values."""
        return self.b.slice_dim(x, 2, 0, keys)

    def scores(self, start: int, stop: int, keys: int) -> Val:
        """(B, G, R, block, keys), scaled, biased and masked."""
        b = self.b
        query, key = self.part(self.query, start, stop), self.seen(self.key, keys)
        scores = b.dot_general(query, key, ([4], [3]), ([0, 1], [0, 1]), self.dtype)
        scores = b.mul(scores, self.scale)
        bias = self._bias(start, stop, keys)
        if bias is not None and bias.dtype is torch.bool:
            scores = b.select(bias, scores, _NEGATIVE_INFINITY)
        elif bias is not None:
            scores = b.add(scores, b.convert(bias, self.dtype))
        if self.causal and keys > start:
            shape = (stop - start, keys)
            visible = b.ge(b.add(b.iota(shape, 0), start), b.iota(shape, 1))
            scores = b.select(visible, scores, _NEGATIVE_INFINITY)
        return scores

    def _bias(self, start: int, stop: int, keys: int) -> Val | None:
        bias = self.bias
        if bias is None:
            return None
        if bias.shape[3] > 1:
            bias = self.part(bias, start, stop)
        return self.b.slice_dim(bias, 4, 0, keys) if bias.shape[4] > 1 else bias

    def softmax(self, scores: Val) -> tuple[Val, Val]:
        """(probabilities, logarithm of the sum of exponentials); a row that is masked whole gives zeros."""
        b = self.b
        largest = b.reduce_max(scores, [4], True)
        shift = b.select(b.eq(largest, _NEGATIVE_INFINITY), 0, largest)
        exponentials = b.exp(b.sub(scores, shift))
        total = b.reduce_sum(exponentials, [4], True)
        probabilities = b.div(exponentials, b.select(b.eq(total, 0), 1, total))
        return probabilities, b.squeeze(b.add(b.log(total), shift), 4)


@emitter("aten._scaled_dot_product_fused_attention_overrideable", static=("dropout_p", "scale"))
def fused_attention(
    b: Builder,
    out: Any,
    query: Val,
    key: Val,
    value: Val,
    attn_bias: Val | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    shape, dropout = shape_of(out[0]), _Dropout(b, dropout_p)
    if 0 in (*shape, key.numel):
        result, sums = b.full(shape, 0, out[0].dtype), b.full(shape_of(out[1]), 0, out[1].dtype)
        return (result, sums, *out[2:6], *dropout.philox(), *out[8:])
    attention = _Attention(b, query, key, value, attn_bias, is_causal, scale)
    results, sums_of_blocks = [], []
    for start, stop, keys in attention.blocks():
        probabilities, logs = attention.softmax(attention.scores(start, stop, keys))
        if dropout:
            factor = dropout.factor(probabilities.shape, probabilities.dtype)
            probabilities = b.mul(probabilities, factor)
        values = attention.seen(attention.value, keys)
        narrow = b.convert(probabilities, values.dtype)
        results.append(b.dot_general(narrow, values, ([4], [2]), ([0, 1], [0, 1]), attention.dtype))
        sums_of_blocks.append(logs)
    result = b.reshape(b.concat(results, 3), shape)
    sums = b.reshape(b.concat(sums_of_blocks, 3), shape_of(out[1]))
    saved = (b.convert(result, out[0].dtype), b.convert(sums, out[1].dtype))
    return (*saved, *out[2:6], *dropout.philox(), *out[8:])


@emitter(
    "aten._scaled_dot_product_fused_attention_overrideable_backward",
    static=("dropout_p", "scale"),
)
def fused_attention_backward(
    b: Builder,
    out: Any,
    grad_out: Val,
    query: Val,
    key: Val,
    value: Val,
    attn_bias: Val | None,
    grad_input_mask: list[bool],
    result: Val,
    logsumexp: Val,
    cum_seq_q: Val | None,
    cum_seq_k: Val | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Val,
    philox_offset: Val,
    *,
    scale: float | None = None,
) -> list[Val | None]:
    if 0 in (query.numel, key.numel, value.numel):
        return [None if x is None else b.full(shape_of(x), 0, x.dtype) for x in out]
    attention = _Attention(b, query, key, value, attn_bias, is_causal, scale)
    dropout = _Dropout(b, dropout_p, philox_seed, philox_offset)
    gradients = _Gradients(
        attention, dropout, logsumexp, result, grad_out, bool(grad_input_mask[3])
    )
    for block in attention.blocks():
        gradients.add(*block)
    totals = gradients.totals()
    return [
        None
        if like is None
        else b.full(shape_of(like), 0, like.dtype)
        if total is None
        else finish(b, b.reshape(total, shape_of(like)), like)
        for total, like in zip(totals, out, strict=True)
    ]


class _Gradients:
    """Gradients of the operands, summed up block by block."""

    def __init__(
        self,
        attention: _Attention,
        dropout: _Dropout,
        logsumexp: Val,
        result: Val,
        grad_out: Val,
        wants_bias: bool,
    ):
        b = attention.b
        self._b, self._attention, self._dropout = b, attention, dropout
        self._wants_bias = wants_bias and attention.bias is not None
        # The sums are float32; a gradient in float64 needs better ones.
        self._sums: Val | None = None
        if attention.dtype is not torch.float64:
            self._sums = b.reshape(logsumexp, (*attention.leading, attention.queries))
        self._grad = attention.five(grad_out)
        wide = b.mul(
            b.convert(self._grad, attention.dtype),
            b.convert(attention.five(result), attention.dtype),
        )
        self._delta = b.reduce_sum(wide, [4], True)
        self._query: list[Val] = []
        self._key: Val | None = None
        self._value: Val | None = None
        self._bias: Val | None = None

    def _probabilities(self, start: int, stop: int, keys: int) -> Val:
        b, scores = self._b, self._attention.scores(start, stop, keys)
        if self._sums is None:
            return self._attention.softmax(scores)[0]
        sums = b.unsqueeze(self._attention.part(self._sums, start, stop), 4)
        # Where all is masked the sum's logarithm is -inf, and so are the scores.
        finite = b.select(b.eq(sums, _NEGATIVE_INFINITY), 0, sums)
        return b.exp(b.sub(scores, finite))

    def add(self, start: int, stop: int, keys: int) -> None:
        """The share of queries ``start`` to ``stop``, which see ``keys`` keys."""
        b, attention = self._b, self._attention
        probabilities = self._probabilities(start, stop, keys)
        grad = attention.part(self._grad, start, stop)
        key, value = attention.seen(attention.key, keys), attention.seen(attention.value, keys)
        dtype, batch = attention.dtype, ([0, 1], [0, 1])
        factor = None
        if self._dropout:
            factor = self._dropout.factor(probabilities.shape, dtype)
        used = probabilities if factor is None else b.mul(probabilities, factor)
        to_value = b.dot_general(b.convert(used, grad.dtype), grad, ([2, 3], [2, 3]), batch, dtype)
        to_used = b.dot_general(grad, value, ([4], [3]), batch, dtype)
        to_probabilities = to_used if factor is None else b.mul(to_used, factor)
        delta = attention.part(self._delta, start, stop)
        to_scores = b.mul(probabilities, b.sub(to_probabilities, delta))
        narrow = b.convert(to_scores, key.dtype)
        query = attention.part(attention.query, start, stop)
        self._query.append(b.dot_general(narrow, key, ([4], [2]), batch, dtype))
        to_key = b.dot_general(narrow, query, ([2, 3], [2, 3]), batch, dtype)
        self._key = self._extended(self._key, to_key)
        self._value = self._extended(self._value, to_value)
        if self._wants_bias:
            self._add_bias(to_scores, start, keys)

    def _extended(self, total: Val | None, share: Val) -> Val:
        """``total`` plus the share of the first keys."""
        b, missing = self._b, self._attention.keys - share.shape[2]
        padded = b.pad(share, [0] * 4, [0, 0, missing, 0])
        return padded if total is None else b.add(total, padded)

    def _add_bias(self, to_scores: Val, start: int, keys: int) -> None:
        b, attention = self._b, self._attention
        assert attention.bias is not None
        rest = attention.queries - start - to_scores.shape[3]
        low, high = [0, 0, 0, start, 0], [0, 0, 0, rest, attention.keys - keys]
        shared = [dim for dim, size in enumerate(attention.bias.shape) if size == 1]
        if 3 in shared:
            low[3] = high[3] = 0
        summed = b.reduce_sum(to_scores, shared, True) if shared else to_scores
        if 4 in shared:
            high[4] = 0
        share = b.pad(summed, low, high)
        self._bias = share if self._bias is None else b.add(self._bias, share)

    def totals(self) -> list[Val | None]:
        """The gradients of query, key, value and bias."""
        b, scale = self._b, self._attention.scale
        assert self._key is not None
        query = b.mul(b.concat(self._query, 3), scale)
        return [query, b.mul(self._key, scale), self._value, self._bias]
