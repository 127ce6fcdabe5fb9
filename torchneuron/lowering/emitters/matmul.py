"""Matrix and vector products. Narrow floats accumulate in float32 and round once."""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish, is_one, operand
from torchneuron.lowering.registry import emitter

Arg = Val | Number


def _with_bias(b: Builder, out: Any, bias: Val, product: Val, beta: Arg, alpha: Arg) -> Val:
    """beta * bias + alpha * product; a ``beta`` of 0 ignores the bias, NaNs too."""
    dtype = product.dtype
    scaled = product if is_one(alpha) else b.mul(product, operand(b, alpha, dtype))
    if not isinstance(beta, Val):
        if beta == 0:
            return finish(b, scaled, out)
        start = b.convert(bias, dtype)
        return finish(b, b.add(start if beta == 1 else b.mul(start, beta), scaled), out)
    factor = b.scalar(beta, dtype)
    start = b.select(b.eq(factor, 0), 0, b.mul(b.convert(bias, dtype), factor))
    return finish(b, b.add(start, scaled), out)


@emitter("aten.mm", "aten.bmm", "aten.mm.dtype", "aten.bmm.dtype", "aten._int_mm")
def mm(b: Builder, out: Any, x: Val, y: Val, out_dtype: torch.dtype | None = None) -> Val:
    if out.dtype is torch.int32 and x.dtype is torch.int8:
        x, y = b.convert(x, torch.int32), b.convert(y, torch.int32)
    return finish(b, b.matmul(x, y), out)


@emitter("aten.addmm", "aten.baddbmm")
def addmm(b: Builder, out: Any, bias: Val, x: Val, y: Val, *, beta: Arg = 1, alpha: Arg = 1) -> Val:
    return _with_bias(b, out, bias, b.matmul(x, y), beta, alpha)


@emitter("aten.addmm.dtype", "aten.baddbmm.dtype")
def addmm_dtype(
    b: Builder,
    out: Any,
    bias: Val,
    x: Val,
    y: Val,
    out_dtype: torch.dtype,
    *,
    beta: Arg = 1,
    alpha: Arg = 1,
) -> Val:
    return _with_bias(b, out, bias, b.matmul(x, y), beta, alpha)


@emitter("aten.addbmm")
def addbmm(
    b: Builder, out: Any, bias: Val, x: Val, y: Val, *, beta: Arg = 1, alpha: Arg = 1
) -> Val:
    # One contraction over batch and k together.
    product = b.dot_general(x, y, ([0, 2], [0, 1]), dtype=opmath(x.dtype))
    return _with_bias(b, out, bias, product, beta, alpha)


def _matvec(b: Builder, x: Val, y: Val) -> Val:
    return b.dot_general(x, y, ([1], [0]), dtype=opmath(x.dtype))


@emitter("aten.mv")
def mv(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return finish(b, _matvec(b, x, y), out)


@emitter("aten.addmv")
def addmv(b: Builder, out: Any, bias: Val, x: Val, y: Val, *, beta: Arg = 1, alpha: Arg = 1) -> Val:
    return _with_bias(b, out, bias, _matvec(b, x, y), beta, alpha)


@emitter("aten.dot")
def dot(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return finish(b, b.dot_general(x, y, ([0], [0]), dtype=opmath(x.dtype)), out)


@emitter("aten.vdot")
def vdot(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return dot(b, out, b.conj(x), y)


@emitter("aten.outer", "aten.ger")
def outer(b: Builder, out: Any, x: Val, y: Val) -> Val:
    return finish(b, _outer(b, x, y, out.dtype), out)


def _outer(b: Builder, x: Val, y: Val, dtype: torch.dtype) -> Val:
    left, right = b.convert(x, opmath(dtype)), b.convert(y, opmath(dtype))
    return b.mul(b.unsqueeze(left, 1), b.unsqueeze(right, 0))


@emitter("aten.addr")
def addr(b: Builder, out: Any, bias: Val, x: Val, y: Val, *, beta: Arg = 1, alpha: Arg = 1) -> Val:
    return _with_bias(b, out, bias, _outer(b, x, y, out.dtype), beta, alpha)
