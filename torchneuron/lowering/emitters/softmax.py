"""Softmax, its logarithm, and their gradients."""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish
from torchneuron.lowering.registry import emitter


def _shifted(b: Builder, x: Val, axis: int) -> Val:
    """``x`` minus its maximum along ``axis``."""
    return b.sub(x, b.reduce_max(x, [axis], keepdim=True))


def _softmax_value(b: Builder, x: Val, axis: int) -> Val:
    exponentials = b.exp(_shifted(b, x, axis))
    return b.div(exponentials, b.reduce_sum(exponentials, [axis], keepdim=True))


def _row(b: Builder, out: Any, x: Val, dim: int) -> tuple[Val, int] | None:
    """``x`` in opmath and its axis; None if there is nothing to normalise."""
    if x.numel == 0 or x.ndim == 0:
        return None
    return b.convert(x, opmath(torch.promote_types(x.dtype, out.dtype))), dim % x.ndim


@emitter("aten._softmax")
def softmax(b: Builder, out: Any, x: Val, dim: int, half_to_float: bool = False) -> Val:
    row = _row(b, out, x, dim)
    return finish(b, _softmax_value(b, *row), out) if row else _trivial(b, out, x, 1)


@emitter("aten._log_softmax")
def log_softmax(b: Builder, out: Any, x: Val, dim: int, half_to_float: bool = False) -> Val:
    row = _row(b, out, x, dim)
    if row is None:
        return _trivial(b, out, x, 0)
    shifted = _shifted(b, *row)
    total = b.reduce_sum(b.exp(shifted), [row[1]], keepdim=True)
    return finish(b, b.sub(shifted, b.log(total)), out)


def _trivial(b: Builder, out: Any, x: Val, value: int) -> Val:
    """Of an empty tensor, or a 0-d one, whose softmax is 1 unless it is no finite number."""
    one = b.full(x.shape, value, out.dtype)
    return b.select(b.isfinite(x), one, float("nan")) if x.numel else one


@emitter("aten._safe_softmax")
def safe_softmax(b: Builder, out: Any, x: Val, dim: int, dtype: torch.dtype | None = None) -> Val:
    row = _row(b, out, x, dim)
    if row is None:
        return softmax(b, out, x, dim)
    value, axis = row
    masked = b.reduce_and(b.eq(value, float("-inf")), [axis], keepdim=True)
    return finish(b, b.select(masked, 0, _softmax_value(b, value, axis)), out)


@emitter("aten._softmax_backward_data")
def softmax_backward(
    b: Builder, out: Any, grad: Val, output: Val, dim: int, input_dtype: torch.dtype
) -> Val:
    if grad.numel == 0:
        return b.full(grad.shape, 0, out.dtype)
    dtype = opmath(grad.dtype)
    g, y = b.convert(grad, dtype), b.convert(output, dtype)
    mean = _sum(b, b.mul(g, y), dim)
    difference = b.sub(g, mean)
    if output.dtype == dtype and g.ndim:
        # Where one weight is close to one, the mean is close to its gradient, and the rounding of
        # the mean would be all that is left of their difference: so subtract what is left of the
        # mean. That asks for weights whose sum is one but for rounding, as narrow floats' is not.
        rest = _sum(b, b.mul(difference, y), dim)
        rounding = 2 * torch.finfo(dtype).eps * g.shape[dim]
        is_one = b.le(b.abs(b.sub(_sum(b, y, dim), 1)), rounding)
        difference = b.sub(difference, b.select(is_one, rest, 0))
    return finish(b, b.mul(difference, y), out)


def _sum(b: Builder, x: Val, dim: int) -> Val:
    return b.reduce_sum(x, [dim], keepdim=True) if x.ndim else x


@emitter("aten._log_softmax_backward_data")
def log_softmax_backward(
    b: Builder, out: Any, grad: Val, output: Val, dim: int, input_dtype: torch.dtype
) -> Val:
    if grad.numel == 0:
        return b.full(grad.shape, 0, out.dtype)
    dtype = opmath(grad.dtype)
    g, y = b.convert(grad, dtype), b.convert(output, dtype)
    return finish(b, b.sub(g, b.mul(b.exp(y), _sum(b, g, dim))), out)
