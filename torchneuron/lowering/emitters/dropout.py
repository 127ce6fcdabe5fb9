"""Dropout."""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.emitting import finish, in_opmath
from torchneuron.lowering.hlo.philox import random_words
from torchneuron.lowering.registry import emitter


def uniform(b: Builder, bits: Val) -> Val:
    """Random ui32 as float32 in [0, 1), all multiples of 2**-24."""
    return b.mul(b.convert(b.shift_right(bits, 8), torch.float32), 2.0**-24)


def kept_scale(b: Builder, p: Val | Number, dtype: torch.dtype) -> Val:
    """1 / (1 - p), by which what is kept grows; 0 if nothing is."""
    rest = b.sub(1, b.scalar(p, dtype))
    return b.select(b.eq(rest, 0), 0, b.div(1, rest))


@emitter("aten.native_dropout")
def native_dropout(
    b: Builder, out: Any, input: Val, p: Val | Number, train: bool | None
) -> tuple[Val, Val]:
    if train is False:
        return input, b.full(input.shape, True, torch.bool)
    drawn = uniform(b, random_words(b, input.shape)[0])
    mask = b.ge(drawn, b.scalar(p, torch.float32))
    (x,) = in_opmath(b, out[0], input)
    kept = b.mul(x, b.convert(mask, x.dtype))
    return finish(b, b.mul(kept, kept_scale(b, p, x.dtype)), out[0]), mask


@emitter("aten.native_dropout_backward")
def native_dropout_backward(
    b: Builder, out: Any, grad_output: Val, mask: Val, scale: Val | Number
) -> Val:
    grad, kept = in_opmath(b, out, grad_output, mask)
    return finish(b, b.mul(b.mul(grad, kept), b.scalar(scale, grad.dtype)), out)
