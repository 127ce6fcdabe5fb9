"""Gradients of the activations that keep their result or input."""

from typing import Any

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.emitting import finish, in_opmath, operand
from torchneuron.lowering.registry import emitter

Arg = Val | Number


@emitter("aten.sigmoid_backward")
def sigmoid_backward(b: Builder, out: Any, grad_output: Val, output: Val) -> Val:
    grad, y = in_opmath(b, out, grad_output, b.conj(output))
    return finish(b, b.mul(grad, b.mul(b.sub(1, y), y)), out)


@emitter("aten.tanh_backward")
def tanh_backward(b: Builder, out: Any, grad_output: Val, output: Val) -> Val:
    grad, y = in_opmath(b, out, grad_output, b.conj(output))
    return finish(b, b.mul(grad, b.sub(1, b.mul(y, y))), out)


@emitter("aten.threshold_backward")
def threshold_backward(b: Builder, out: Any, grad_output: Val, x: Val, threshold: Arg) -> Val:
    grad = b.convert(grad_output, out.dtype)
    below = b.le(x, operand(b, threshold, x.dtype))
    return finish(b, b.select(below, b.full(grad.shape, 0, grad.dtype), grad), out)


@emitter("aten.logit_backward", static=("eps",))
def logit_backward(b: Builder, out: Any, grad_output: Val, x: Val, eps: float | None = None) -> Val:
    grad, value = in_opmath(b, out, grad_output, x)
    slope = b.div(grad, b.mul(value, b.sub(1, value)))
    low = 0.0 if eps is None else eps
    inside = b.and_(b.ge(value, low), b.le(value, 1.0 - low))
    return finish(b, b.select(inside, slope, float("nan") if eps is None else 0.0), out)
