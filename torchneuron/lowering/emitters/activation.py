"""Activation functions and their gradients. Their parameters are part of the program: models do not vary them."""

import math
from typing import Any

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.emitters.dropout import uniform
from torchneuron.lowering.emitting import finish, in_opmath, shape_of
from torchneuron.lowering.hlo.philox import random_words
from torchneuron.lowering.registry import emitter

_SQRT_HALF = math.sqrt(0.5)
_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBIC = 0.044715


# Smooth


@emitter("aten.silu")
def silu(b: Builder, out: Any, self: Val) -> Val:
    (x,) = in_opmath(b, out, self)
    return finish(b, b.mul(x, b.logistic(x)), out)


@emitter("aten.silu_backward")
def silu_backward(b: Builder, out: Any, grad_output: Val, self: Val) -> Val:
    grad, x = in_opmath(b, out, grad_output, self)
    gate = b.logistic(x)
    slope = b.mul(gate, b.add(1, b.mul(x, b.sub(1, gate))))
    return finish(b, b.mul(grad, slope), out)


def _softplus(b: Builder, x: Val) -> Val:
    return b.log1p(b.exp(x))


@emitter("aten.mish")
def mish(b: Builder, out: Any, self: Val) -> Val:
    (x,) = in_opmath(b, out, self)
    return finish(b, b.mul(x, b.tanh(_softplus(b, x))), out)


@emitter("aten.mish_backward")
def mish_backward(b: Builder, out: Any, grad_output: Val, self: Val) -> Val:
    grad, x = in_opmath(b, out, grad_output, self)
    inner = b.tanh(_softplus(b, x))
    slope = b.add(inner, b.mul(b.mul(x, b.logistic(x)), b.sub(1, b.mul(inner, inner))))
    return finish(b, b.mul(grad, slope), out)


@emitter("aten.log_sigmoid_forward")
def log_sigmoid_forward(b: Builder, out: Any, self: Val) -> tuple[Val, Val]:
    (x,) = in_opmath(b, out[0], self)
    buffer = b.exp(b.neg(b.abs(x)))
    result = b.sub(b.min(x, 0), b.log1p(buffer))
    kept = (
        finish(b, buffer, out[1]) if out[1].numel() else b.full(shape_of(out[1]), 0, out[1].dtype)
    )
    return finish(b, result, out[0]), kept


@emitter("aten.log_sigmoid_backward")
def log_sigmoid_backward(b: Builder, out: Any, grad_output: Val, self: Val, buffer: Val) -> Val:
    # The buffer is empty on some devices; to compute it again costs less than to read it.
    grad, x = in_opmath(b, out, grad_output, self)
    return finish(b, b.mul(grad, b.logistic(b.neg(x))), out)


@emitter("aten.softplus", static=("beta", "threshold"))
def softplus(b: Builder, out: Any, self: Val, beta: Number = 1, threshold: Number = 20) -> Val:
    (x,) = in_opmath(b, out, self)
    scaled = b.mul(x, beta)
    curve = b.div(_softplus(b, scaled), beta)
    return finish(b, b.select(b.gt(scaled, threshold), x, curve), out)


@emitter("aten.softplus_backward", static=("beta", "threshold"))
def softplus_backward(
    b: Builder, out: Any, grad_output: Val, self: Val, beta: Number, threshold: Number
) -> Val:
    grad, x = in_opmath(b, out, grad_output, self)
    scaled = b.mul(x, beta)
    slope = b.mul(grad, b.logistic(scaled))
    return finish(b, b.select(b.gt(scaled, threshold), grad, slope), out)


# GELU


def _normal_cdf(b: Builder, x: Val) -> Val:
    return b.mul(b.add(1, b.erf(b.mul(x, _SQRT_HALF))), 0.5)


def _tanh_argument(b: Builder, x: Val) -> Val:
    cube = b.mul(b.mul(x, x), x)
    return b.mul(b.add(x, b.mul(cube, _TANH_CUBIC)), _TANH_SCALE)


@emitter("aten.gelu")
def gelu(b: Builder, out: Any, self: Val, approximate: str = "none") -> Val:
    (x,) = in_opmath(b, out, self)
    if approximate == "tanh":
        gate = b.mul(b.add(1, b.tanh(_tanh_argument(b, x))), 0.5)
    else:
        gate = _normal_cdf(b, x)
    return finish(b, b.mul(x, gate), out)


@emitter("aten.gelu_backward")
def gelu_backward(
    b: Builder, out: Any, grad_output: Val, self: Val, approximate: str = "none"
) -> Val:
    grad, x = in_opmath(b, out, grad_output, self)
    if approximate == "tanh":
        inner = b.tanh(_tanh_argument(b, x))
        rise = b.mul(b.add(1, b.mul(b.mul(x, x), 3 * _TANH_CUBIC)), _TANH_SCALE)
        curve = b.mul(b.mul(x, b.sub(1, b.mul(inner, inner))), rise)
        slope = b.mul(b.add(b.add(1, inner), curve), 0.5)
    else:
        density = b.mul(b.exp(b.mul(b.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
        slope = b.add(_normal_cdf(b, x), b.mul(x, density))
    return finish(b, b.mul(grad, slope), out)


# Piecewise


@emitter("aten.leaky_relu", static=("negative_slope",))
def leaky_relu(b: Builder, out: Any, self: Val, negative_slope: Number = 0.01) -> Val:
    (x,) = in_opmath(b, out, self)
    return finish(b, b.select(b.gt(x, 0), x, b.mul(x, negative_slope)), out)


@emitter("aten.leaky_relu_backward", static=("negative_slope",))
def leaky_relu_backward(
    b: Builder,
    out: Any,
    grad_output: Val,
    self: Val,
    negative_slope: Number,
    self_is_result: bool,
) -> Val:
    grad, x = in_opmath(b, out, grad_output, self)
    return finish(b, b.select(b.gt(x, 0), grad, b.mul(grad, negative_slope)), out)


@emitter("aten.elu", static=("alpha", "scale", "input_scale"))
def elu(
    b: Builder,
    out: Any,
    self: Val,
    alpha: Number = 1,
    scale: Number = 1,
    input_scale: Number = 1,
) -> Val:
    (x,) = in_opmath(b, out, self)
    curve = b.mul(b.expm1(b.mul(x, input_scale)), alpha * scale)
    return finish(b, b.select(b.lt(x, 0), curve, b.mul(x, scale)), out)


@emitter("aten.elu_backward", static=("alpha", "scale", "input_scale"))
def elu_backward(
    b: Builder,
    out: Any,
    grad_output: Val,
    alpha: Number,
    scale: Number,
    input_scale: Number,
    is_result: bool,
    self_or_result: Val,
) -> Val:
    grad, x = in_opmath(b, out, grad_output, self_or_result)
    if is_result:
        curve = b.mul(b.add(x, alpha * scale), input_scale)
    else:
        curve = b.mul(b.exp(b.mul(x, input_scale)), input_scale * (alpha * scale))
    slope = b.select(b.le(x, 0), curve, scale)
    return finish(b, b.mul(grad, slope), out)


@emitter("aten.celu", static=("alpha",))
def celu(b: Builder, out: Any, self: Val, alpha: Number = 1.0) -> Val:
    return elu(b, out, self, alpha, 1, 1 / alpha)


def _clipped_ramp(b: Builder, x: Val) -> Val:
    """min(max(x + 3, 0), 6)"""
    return b.clamp(0, b.add(x, 3), 6)


@emitter("aten.hardsigmoid")
def hardsigmoid(b: Builder, out: Any, self: Val) -> Val:
    (x,) = in_opmath(b, out, self)
    return finish(b, b.div(_clipped_ramp(b, x), 6), out)


@emitter("aten.hardsigmoid_backward")
def hardsigmoid_backward(b: Builder, out: Any, grad_output: Val, self: Val) -> Val:
    grad, x = in_opmath(b, out, grad_output, self)
    inside = b.and_(b.gt(x, -3), b.lt(x, 3))
    return finish(b, b.select(inside, b.div(grad, 6), 0), out)


@emitter("aten.hardswish")
def hardswish(b: Builder, out: Any, self: Val) -> Val:
    (x,) = in_opmath(b, out, self)
    return finish(b, b.div(b.mul(x, _clipped_ramp(b, x)), 6), out)


@emitter("aten.hardswish_backward")
def hardswish_backward(b: Builder, out: Any, grad_output: Val, self: Val) -> Val:
    grad, x = in_opmath(b, out, grad_output, self)
    middle = b.mul(grad, b.add(b.div(x, 3), 0.5))
    result = b.select(b.lt(x, 3), middle, grad)
    return finish(b, b.select(b.le(x, -3), 0, result), out)


@emitter("aten.hardtanh", static=("min_val", "max_val"))
def hardtanh(b: Builder, out: Any, self: Val, min_val: Number = -1, max_val: Number = 1) -> Val:
    return finish(b, b.clamp(min_val, self, max_val), out)


@emitter("aten.hardtanh_backward", static=("min_val", "max_val"))
def hardtanh_backward(
    b: Builder, out: Any, grad_output: Val, self: Val, min_val: Number, max_val: Number
) -> Val:
    grad, x = in_opmath(b, out, grad_output, self)
    outside = b.or_(b.le(x, min_val), b.ge(x, max_val))
    return finish(b, b.select(outside, 0, grad), out)


@emitter("aten.hardshrink", static=("lambd",))
def hardshrink(b: Builder, out: Any, self: Val, lambd: Number = 0.5) -> Val:
    return finish(b, b.select(_within(b, self, lambd), 0, self), out)


@emitter("aten.softshrink", static=("lambd",))
def softshrink(b: Builder, out: Any, self: Val, lambd: Number = 0.5) -> Val:
    (x,) = in_opmath(b, out, self)
    # x times 0 keeps a NaN.
    middle = b.select(b.lt(x, -lambd), b.add(x, lambd), b.mul(x, 0))
    return finish(b, b.select(b.gt(x, lambd), b.sub(x, lambd), middle), out)


@emitter("aten.hardshrink_backward", "aten.softshrink_backward", static=("lambd",))
def shrink_backward(b: Builder, out: Any, grad: Val, self: Val, lambd: Number) -> Val:
    left, x = b.convert(grad, out.dtype), b.convert(self, out.dtype)
    return finish(b, b.select(_within(b, x, lambd), 0, left), out)


def _within(b: Builder, x: Val, bound: Number) -> Val:
    return b.and_(b.ge(x, -bound), b.le(x, bound))


# With a second operand


@emitter("aten._prelu_kernel")
def prelu_kernel(b: Builder, out: Any, self: Val, weight: Val) -> Val:
    x, slope = in_opmath(b, out, self, weight)
    return finish(b, b.select(b.gt(x, 0), x, b.mul(slope, x)), out)


@emitter("aten._prelu_kernel_backward")
def prelu_kernel_backward(
    b: Builder, out: Any, grad_output: Val, self: Val, weight: Val
) -> tuple[Val, Val]:
    grad, x, slope = in_opmath(b, out[0], grad_output, self, weight)
    positive = b.gt(x, 0)
    grad_self = b.select(positive, grad, b.mul(slope, grad))
    grad_weight = b.select(positive, 0, b.mul(x, grad))
    return finish(b, grad_self, out[0]), finish(b, grad_weight, out[1])


def _halves(b: Builder, x: Val, dim: int) -> tuple[Val, Val]:
    dim %= x.ndim
    middle = x.shape[dim] // 2
    return b.slice_dim(x, dim, 0, middle), b.slice_dim(x, dim, middle, x.shape[dim])


@emitter("aten.glu")
def glu(b: Builder, out: Any, self: Val, dim: int = -1) -> Val:
    (x,) = in_opmath(b, out, self)
    value, gate = _halves(b, x, dim)
    return finish(b, b.mul(value, b.logistic(gate)), out)


@emitter("aten.glu_backward")
def glu_backward(b: Builder, out: Any, grad_output: Val, self: Val, dim: int) -> Val:
    grad, x = in_opmath(b, out, grad_output, self)
    value, gate = _halves(b, x, dim)
    gate = b.logistic(gate)
    through = b.mul(gate, grad)
    turned = b.mul(b.mul(b.sub(1, gate), value), through)
    return finish(b, b.concat([through, turned], dim), out)


# Leaky ReLU with a random slope


@emitter("aten.rrelu_with_noise_functional", static=("lower", "upper"))
def rrelu_with_noise(
    b: Builder,
    out: Any,
    self: Val,
    noise: Val,
    lower: Number = 0.125,
    upper: Number = 1.0 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Val, Val]:
    if not training:
        return leaky_relu(b, out[0], self, (lower + upper) / 2), noise
    (x,) = in_opmath(b, out[0], self)
    drawn = b.add(b.mul(uniform(b, random_words(b, x.shape)[0]), upper - lower), lower)
    slope = b.select(b.le(x, 0), b.convert(drawn, x.dtype), 1)
    return finish(b, b.mul(x, slope), out[0]), finish(b, slope, out[1])


@emitter("aten.rrelu_with_noise_backward", static=("lower", "upper"))
def rrelu_with_noise_backward(
    b: Builder,
    out: Any,
    grad_output: Val,
    self: Val,
    noise: Val,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> Val:
    if training and upper - lower > 1e-6:
        return finish(b, b.mul(*in_opmath(b, out, noise, grad_output)), out)
    return leaky_relu_backward(b, out, grad_output, self, (lower + upper) / 2, self_is_result)
