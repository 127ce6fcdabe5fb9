"""Elementwise ops of three operands: selection, clamping, interpolation, fused multiply-adds."""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.emitting import finish, in_opmath, is_one, operand, tensor
from torchneuron.lowering.registry import emitter

Arg = Val | Number


@emitter("aten.where.self")
def where(b: Builder, out: Any, condition: Val, x: Val, y: Val) -> Val:
    left, right = b.convert(x, out.dtype), b.convert(y, out.dtype)
    return finish(b, b.select(b.convert(condition, torch.bool), left, right), out)


@emitter("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(b: Builder, out: Any, x: Val, mask: Val, value: Arg) -> Val:
    return finish(b, b.select(b.convert(mask, torch.bool), operand(b, value, x.dtype), x), out)


def _clamp(b: Builder, out: Any, x: Val, low: Arg | None, high: Arg | None) -> Val:
    result = b.convert(x, out.dtype)
    if low is not None:
        result = b.max(result, tensor(b, low, out.dtype))
    if high is not None:
        result = b.min(result, tensor(b, high, out.dtype))
    return finish(b, result, out)


@emitter("aten.clamp", "aten.clamp.Tensor")
def clamp(b: Builder, out: Any, x: Val, min: Arg | None = None, max: Arg | None = None) -> Val:
    return _clamp(b, out, x, min, max)


@emitter("aten.clamp_min", "aten.clamp_min.Tensor")
def clamp_min(b: Builder, out: Any, x: Val, min: Arg) -> Val:
    return _clamp(b, out, x, min, None)


@emitter("aten.clamp_max", "aten.clamp_max.Tensor")
def clamp_max(b: Builder, out: Any, x: Val, max: Arg) -> Val:
    return _clamp(b, out, x, None, max)


@emitter("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(b: Builder, out: Any, start: Val, end: Val, weight: Arg) -> Val:
    x, y, w = in_opmath(b, out, start, end, weight)
    gap = b.sub(y, x)
    # From the nearer end, so that weights 0 and 1 give the ends exactly.
    near_start = b.add(x, b.mul(gap, w))
    near_end = b.sub(y, b.mul(gap, b.sub(1, w)))
    return finish(b, b.select(b.lt(b.abs(w), 0.5), near_start, near_end), out)


@emitter("aten.addcmul")
def addcmul(b: Builder, out: Any, x: Val, first: Val, second: Val, value: Arg = 1) -> Val:
    base, left, right = in_opmath(b, out, x, first, second)
    scaled = left if is_one(value) else b.mul(left, operand(b, value, left.dtype))
    return finish(b, b.add(base, b.mul(scaled, right)), out)


@emitter("aten.addcdiv")
def addcdiv(b: Builder, out: Any, x: Val, first: Val, second: Val, value: Arg = 1) -> Val:
    base, left, right = in_opmath(b, out, x, first, second)
    scaled = left if is_one(value) else b.mul(left, operand(b, value, left.dtype))
    return finish(b, b.add(base, b.div(scaled, right)), out)
