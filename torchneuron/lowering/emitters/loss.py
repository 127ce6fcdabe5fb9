"""Losses that look values up by class. The others are decompositions."""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.registry import emitter

_MEAN, _SUM = 1, 2


def _with_batch(b: Builder, x: Val) -> Val:
    """(C) becomes (1, C)."""
    return b.unsqueeze(x, 0) if x.ndim == 1 else x


def _batch_target(b: Builder, target: Val, x: Val) -> Val:
    """The classes as int64 of ``x``'s shape without its dimension 1."""
    return b.reshape(b.convert(target, torch.int64), (x.shape[0], *x.shape[2:]))


def _at_class(b: Builder, x: Val, target: Val) -> Val:
    """``x[n, target[n, ...], ...]``; NaN for a class that does not exist, where the CPU raises."""
    classes = x.shape[1]
    inside = b.and_(b.ge(target, 0), b.lt(target, classes))
    safe = b.select(inside, target, 0)
    each = 1
    for size in x.shape[2:]:
        each *= size
    place = b.mul(b.add(b.mul(b.iota(target.shape, 0), classes), safe), each)
    if each > 1:
        inner = b.reshape(b.iota((each,), 0), (1, *x.shape[2:]))
        place = b.add(place, inner)
    seen = b.take(b.reshape(x, (x.numel,)), place, 0)
    return b.select(inside, seen, float("nan"))


def _class_weight(b: Builder, weight: Val | None, target: Val, dtype: torch.dtype) -> Val | None:
    """Each target's weight; the clamped class's where there is no such class."""
    if weight is None:
        return None
    return b.convert(b.take(weight, b.clamp(0, target, weight.numel - 1), 0), dtype)


def _nll_forward(
    b: Builder,
    out: Any,
    self: Val,
    target: Val,
    weight: Val | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Val, Val]:
    x = _with_batch(b, b.convert(self, opmath(self.dtype)))
    classes = _batch_target(b, target, x)
    counts = b.ne(classes, ignore_index)
    if x.numel == 0:
        losses = b.full(classes.shape, 0, x.dtype)
    else:
        losses = b.neg(_at_class(b, x, classes))
    factor = _class_weight(b, weight, classes, x.dtype)
    if factor is not None:
        losses = b.mul(losses, factor)
    losses = b.select(counts, losses, 0)
    shares = b.convert(counts, x.dtype) if factor is None else b.select(counts, factor, 0)
    weights = b.reduce_sum(shares)
    if reduction not in (_MEAN, _SUM):
        if self.ndim > 1:
            weights = b.full((), 0, x.dtype)
        losses = b.reshape(losses, shape_of(out[0]))
        return b.convert(losses, out[0].dtype), b.convert(weights, out[1].dtype)
    total = b.reduce_sum(losses)
    if reduction == _MEAN:
        total = b.div(total, weights)
    return finish(b, total, out[0]), finish(b, weights, out[1])


def _nll_backward(
    b: Builder,
    out: Any,
    grad_output: Val,
    self: Val,
    target: Val,
    weight: Val | None,
    reduction: int,
    ignore_index: int,
    total_weight: Val,
) -> Val:
    dtype = opmath(out.dtype)
    x = _with_batch(b, self)
    classes = _batch_target(b, target, x)
    grad = b.neg(b.convert(grad_output, dtype))
    if reduction == _MEAN:
        grad = b.div(grad, b.convert(total_weight, dtype))
    if grad.ndim:
        grad = b.reshape(grad, classes.shape)
    factor = _class_weight(b, weight, classes, dtype)
    if factor is not None:
        grad = b.mul(grad, factor)
    # What is to be ignored matches no class.
    matched = b.unsqueeze(b.select(b.ne(classes, ignore_index), classes, -1), 1)
    own = b.reshape(b.iota((x.shape[1],), 0), (1, x.shape[1], *[1] * (x.ndim - 2)))
    hit = b.eq(matched, own)
    spread = b.unsqueeze(grad, 1) if grad.ndim else grad
    return b.reshape(b.convert(b.select(hit, spread, 0), out.dtype), self.shape)


for _name in ("nll_loss", "nll_loss2d"):
    emitter(f"aten.{_name}_forward")(_nll_forward)
    emitter(f"aten.{_name}_backward")(_nll_backward)
