"""Batch, layer, group and RMS normalization with their gradients; weight normalization.

Statistics are in float32 for narrow floats, means first and then squared deviations, as on the CPU.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.registry import emitter


def _sum_to(b: Builder, x: Val, dims: Sequence[int]) -> Val:
    return b.reduce_sum(x, dims, keepdim=True)


def _mean_to(b: Builder, x: Val, dims: Sequence[int]) -> Val:
    return b.div(_sum_to(b, x, dims), math.prod(x.shape[dim] for dim in dims))


def _deviations(b: Builder, x: Val, dims: Sequence[int]) -> tuple[Val, Val, Val]:
    """(mean, x - mean, sum of squared deviations)"""
    mean = _mean_to(b, x, dims)
    centred = b.sub(x, mean)
    return mean, centred, _sum_to(b, b.mul(centred, centred), dims)


def _inverse_root(b: Builder, variance: Val, eps: Val | Number) -> Val:
    return b.div(1, b.sqrt(b.add(variance, eps)))


def _affine(b: Builder, x: Val, weight: Val | None, bias: Val | None, shape: Sequence[int]) -> Val:
    """``x * weight + bias``, the parameters reshaped to ``shape``."""
    if weight is not None:
        x = b.mul(x, b.reshape(b.convert(weight, x.dtype), shape))
    if bias is not None:
        x = b.add(x, b.reshape(b.convert(bias, x.dtype), shape))
    return x


def _wide(b: Builder, x: Val) -> Val:
    return b.convert(x, opmath(x.dtype))


# Batch normalization


def _per_channel(x: Val) -> tuple[int, ...]:
    return tuple(size if dim == 1 else 1 for dim, size in enumerate(x.shape))


def _batch_dims(x: Val) -> list[int]:
    return [dim for dim in range(x.ndim) if dim != 1]


def _blend(b: Builder, running: Val, current: Val, momentum: Val | Number) -> Val:
    """The running statistic's next value, in the dtype of ``current``."""
    old, new = b.convert(running, current.dtype), b.reshape(current, running.shape)
    share = b.scalar(momentum, current.dtype)
    return b.add(b.mul(share, new), b.mul(b.sub(1, share), old))


class _BatchNorm:
    """One normalization over all dimensions but the channels'."""

    def __init__(
        self,
        b: Builder,
        x: Val,
        weight: Val | None,
        bias: Val | None,
        running: tuple[Val | None, Val | None],
        training: bool,
        momentum: Val | Number,
        eps: float,
    ):
        self.new_running = running
        wide, channels = _wide(b, x), _per_channel(x)
        if training:
            # Three loops read it: each would compute anew what it is made of, and where that is a
            # convolution, whose channels come last, would read across memory.
            wide = b.materialize(wide)
            dims = _batch_dims(x)
            mean, centred, squares = _deviations(b, wide, dims)
            count = math.prod(x.shape[dim] for dim in dims)
            variance = b.div(squares, count)
            if running[0] is not None and running[1] is not None:
                unbiased = b.div(squares, count - 1)
                self.new_running = (
                    _blend(b, running[0], mean, momentum),
                    _blend(b, running[1], unbiased, momentum),
                )
        else:
            mean, variance = (
                b.reshape(b.convert(value, wide.dtype), channels)
                for value in running
                if value is not None
            )
            centred = b.sub(wide, mean)
        inverse = _inverse_root(b, variance, eps)
        self.result = _affine(b, b.mul(centred, inverse), weight, bias, channels)
        self.mean, self.inverse = mean, inverse

    def outputs(self, b: Builder, out: Sequence[Any]) -> list[Val]:
        """(result, saved mean, saved inverse deviation); the saved ones are empty where ``out`` says so."""
        saved = [
            b.convert(b.reshape(value, shape_of(like)), like.dtype)
            if like.numel()
            else b.full(shape_of(like), 0, like.dtype)
            for value, like in zip((self.mean, self.inverse), out[1:3], strict=True)
        ]
        return [finish(b, self.result, out[0]), *saved]

    def running(self, b: Builder, out: Sequence[Any]) -> list[Val]:
        """The running statistics' next values, in the dtypes of ``out``."""
        return [
            b.convert(value, like.dtype)
            for value, like in zip(self.new_running, out, strict=True)
            if value is not None
        ]


@emitter("aten.native_batch_norm", static=("eps",))
def native_batch_norm(
    b: Builder,
    out: Any,
    input: Val,
    weight: Val | None,
    bias: Val | None,
    running_mean: Val | None,
    running_var: Val | None,
    training: bool,
    momentum: Val | Number,
    eps: float,
) -> list[Val]:
    running = (running_mean, running_var)
    norm = _BatchNorm(b, input, weight, bias, running, training, momentum, eps)
    return norm.outputs(b, out)


@emitter("aten._native_batch_norm_legit_no_training", static=("eps",))
def batch_norm_no_training(
    b: Builder,
    out: Any,
    input: Val,
    weight: Val | None,
    bias: Val | None,
    running_mean: Val,
    running_var: Val,
    momentum: Val | Number,
    eps: float,
) -> list[Val]:
    running = (running_mean, running_var)
    return _BatchNorm(b, input, weight, bias, running, False, momentum, eps).outputs(b, out)


@emitter("aten._native_batch_norm_legit.no_stats", static=("eps",))
def batch_norm_no_stats(
    b: Builder,
    out: Any,
    input: Val,
    weight: Val | None,
    bias: Val | None,
    training: bool,
    momentum: Val | Number,
    eps: float,
) -> list[Val]:
    return _BatchNorm(b, input, weight, bias, (None, None), True, momentum, eps).outputs(b, out)


@emitter("aten._native_batch_norm_legit_functional", static=("eps",))
def batch_norm_functional(
    b: Builder,
    out: Any,
    input: Val,
    weight: Val | None,
    bias: Val | None,
    running_mean: Val,
    running_var: Val,
    training: bool,
    momentum: Val | Number,
    eps: float,
) -> list[Val]:
    running = (running_mean, running_var)
    norm = _BatchNorm(b, input, weight, bias, running, training, momentum, eps)
    return [*norm.outputs(b, out), *norm.running(b, out[3:])]


@emitter("aten._batch_norm_with_update_functional", static=("eps",))
def batch_norm_with_update(
    b: Builder,
    out: Any,
    input: Val,
    weight: Val | None,
    bias: Val | None,
    running_mean: Val,
    running_var: Val,
    momentum: Val | Number,
    eps: float,
) -> list[Val]:
    running = (running_mean, running_var)
    norm = _BatchNorm(b, input, weight, bias, running, True, momentum, eps)
    return [*norm.outputs(b, out), _no_reserve(b, out), *norm.running(b, out[4:])]


@emitter("aten._batch_norm_no_update", static=("eps",))
def batch_norm_no_update(
    b: Builder,
    out: Any,
    input: Val,
    weight: Val | None,
    bias: Val | None,
    running_mean: Val | None,
    running_var: Val | None,
    momentum: Val | Number,
    eps: float,
) -> list[Val]:
    running = (running_mean, running_var)
    norm = _BatchNorm(b, input, weight, bias, running, False, momentum, eps)
    return [*norm.outputs(b, out), _no_reserve(b, out)]


def _no_reserve(b: Builder, out: Any) -> Val:
    """The scratch space that only cuDNN fills."""
    return b.full(shape_of(out[3]), 0, out[3].dtype)


@emitter("aten.native_batch_norm_backward", static=("eps",))
def native_batch_norm_backward(
    b: Builder,
    out: Any,
    grad_out: Val,
    input: Val,
    weight: Val | None,
    running_mean: Val | None,
    running_var: Val | None,
    save_mean: Val | None,
    save_invstd: Val | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> list[Val | None]:
    x, grad, channels = _wide(b, input), _wide(b, grad_out), _per_channel(input)
    saved = (save_mean, save_invstd) if train else (running_mean, running_var)
    mean, inverse = (
        b.reshape(b.convert(value, x.dtype), channels) for value in saved if value is not None
    )
    if not train:
        inverse = _inverse_root(b, inverse, eps)
    dims, scaled = _batch_dims(input), b.mul(b.sub(x, mean), inverse)
    sum_grad, sum_product = _sum_to(b, grad, dims), _sum_to(b, b.mul(grad, scaled), dims)
    grad_input: Val | None = None
    if output_mask[0]:
        if train:
            count = math.prod(x.shape[dim] for dim in dims)
            common = b.add(b.div(sum_grad, count), b.mul(scaled, b.div(sum_product, count)))
            grad = b.sub(grad, common)
        grad_input = _affine(b, b.mul(grad, inverse), weight, None, channels)
    return _masked(b, out, output_mask, [grad_input, sum_product, sum_grad])


def _without_statistics(b: Builder, grad: Val, scaled: Val, dims: Sequence[int]) -> Val:
    """``grad`` less what the mean and the deviation over ``dims`` take of it; ``scaled`` is the normalized input."""
    count = math.prod(grad.shape[dim] for dim in dims)
    total, product = _sum_to(b, grad, dims), _sum_to(b, b.mul(grad, scaled), dims)
    return b.sub(b.sub(grad, b.div(total, count)), b.mul(scaled, b.div(product, count)))


def _masked(
    b: Builder, out: Any, mask: Sequence[bool], values: Sequence[Val | None]
) -> list[Val | None]:
    """The values asked for, in the shapes and dtypes of ``out``."""
    return [
        b.convert(b.reshape(value, shape_of(like)), like.dtype)
        if wanted and value is not None and like is not None
        else None
        for wanted, value, like in zip(mask, values, out, strict=True)
    ]


@emitter("aten.batch_norm_backward", static=("eps",))
def batch_norm_backward(
    b: Builder,
    out: Any,
    grad_out: Val,
    input: Val,
    weight: Val | None,
    running_mean: Val | None,
    running_var: Val | None,
    save_mean: Val | None,
    save_var: Val | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Val,
) -> list[Val | None]:
    tensors = (grad_out, input, weight, running_mean, running_var, save_mean, save_var)
    return native_batch_norm_backward(b, out, *tensors, update, eps, output_mask)


# Layer and RMS normalization: over the last dimensions


def _last(x: Val, normalized_shape: Sequence[int]) -> list[int]:
    return list(range(x.ndim - len(normalized_shape), x.ndim))


def _parameter_shape(x: Val, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return (1,) * (x.ndim - len(normalized_shape)) + tuple(normalized_shape)


@emitter("aten.native_layer_norm", static=("eps",))
def native_layer_norm(
    b: Builder,
    out: Any,
    input: Val,
    normalized_shape: Sequence[int],
    weight: Val | None,
    bias: Val | None,
    eps: float,
) -> list[Val]:
    dims = _last(input, normalized_shape)
    mean, centred, squares = _deviations(b, _wide(b, input), dims)
    variance = b.div(squares, math.prod(normalized_shape))
    inverse = _inverse_root(b, variance, eps)
    shape = _parameter_shape(input, normalized_shape)
    result = _affine(b, b.mul(centred, inverse), weight, bias, shape)
    return [
        b.convert(b.reshape(value, shape_of(like)), like.dtype)
        for value, like in zip((result, mean, inverse), out, strict=True)
    ]


@emitter("aten.native_layer_norm_backward")
def native_layer_norm_backward(
    b: Builder,
    out: Any,
    grad_out: Val,
    input: Val,
    normalized_shape: Sequence[int],
    mean: Val,
    rstd: Val,
    weight: Val | None,
    bias: Val | None,
    output_mask: Sequence[bool],
) -> list[Val | None]:
    x, grad, dims = _wide(b, input), _wide(b, grad_out), _last(input, normalized_shape)
    inverse = b.convert(rstd, x.dtype)
    scaled = b.mul(b.sub(x, b.convert(mean, x.dtype)), inverse)
    shape = _parameter_shape(input, normalized_shape)
    grad_input: Val | None = None
    if output_mask[0]:
        inner = _affine(b, grad, weight, None, shape)
        grad_input = b.mul(_without_statistics(b, inner, scaled, dims), inverse)
    outer = list(range(input.ndim - len(normalized_shape)))
    sums = [_sum_to(b, b.mul(grad, scaled), outer), _sum_to(b, grad, outer)]
    return _masked(b, out, output_mask, [grad_input, *sums])


@emitter("aten._fused_rms_norm", static=("eps",))
def fused_rms_norm(
    b: Builder,
    out: Any,
    input: Val,
    normalized_shape: Sequence[int],
    weight: Val | None,
    eps: float | None,
) -> list[Val]:
    x = _wide(b, input)
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    mean_square = _mean_to(b, b.mul(x, x), _last(input, normalized_shape))
    inverse = _inverse_root(b, mean_square, eps)
    shape = _parameter_shape(input, normalized_shape)
    result = _affine(b, b.mul(x, inverse), weight, None, shape)
    return [b.convert(result, out[0].dtype), b.convert(inverse, out[1].dtype)]


@emitter("aten._fused_rms_norm_backward")
def fused_rms_norm_backward(
    b: Builder,
    out: Any,
    grad_out: Val,
    input: Val,
    normalized_shape: Sequence[int],
    rstd: Val,
    weight: Val | None,
    output_mask: Sequence[bool],
) -> list[Val | None]:
    x, grad, dims = _wide(b, input), _wide(b, grad_out), _last(input, normalized_shape)
    inverse = b.convert(rstd, x.dtype)
    scaled = b.mul(x, inverse)
    inner = _affine(b, grad, weight, None, _parameter_shape(input, normalized_shape))
    along = b.mul(scaled, _mean_to(b, b.mul(inner, scaled), dims))
    grad_input = b.mul(b.sub(inner, along), inverse)
    outer = list(range(input.ndim - len(normalized_shape)))
    return _masked(b, out, output_mask, [grad_input, b.reduce_sum(b.mul(grad, scaled), outer)])


# Group normalization: over the channels of a group and all positions


def _grouped(b: Builder, x: Val, sizes: tuple[int, int, int, int]) -> Val:
    """``x`` as (N, G, C/G, positions)."""
    batch, channels, positions, groups = sizes
    return b.reshape(x, (batch, groups, channels // groups, positions))


@emitter("aten.native_group_norm", static=("eps",))
def native_group_norm(
    b: Builder,
    out: Any,
    input: Val,
    weight: Val | None,
    bias: Val | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> list[Val]:
    x = _grouped(b, _wide(b, input), (N, C, HxW, group))
    mean, centred, squares = _deviations(b, x, [2, 3])
    inverse = _inverse_root(b, b.div(squares, C // group * HxW), eps)
    result = _affine(b, b.mul(centred, inverse), weight, bias, (1, group, C // group, 1))
    return [
        b.convert(b.reshape(value, shape_of(like)), like.dtype)
        for value, like in zip((result, mean, inverse), out, strict=True)
    ]


@emitter("aten.native_group_norm_backward")
def native_group_norm_backward(
    b: Builder,
    out: Any,
    grad_out: Val,
    input: Val,
    mean: Val,
    rstd: Val,
    weight: Val | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> list[Val | None]:
    sizes = (N, C, HxW, group)
    x, grad = _grouped(b, _wide(b, input), sizes), _grouped(b, _wide(b, grad_out), sizes)
    middle, inverse = (
        b.reshape(b.convert(value, x.dtype), (N, group, 1, 1)) for value in (mean, rstd)
    )
    scaled = b.mul(b.sub(x, middle), inverse)
    grad_input: Val | None = None
    if output_mask[0]:
        inner = _affine(b, grad, weight, None, (1, group, C // group, 1))
        grad_input = b.mul(_without_statistics(b, inner, scaled, [2, 3]), inverse)
    sums = [_sum_to(b, b.mul(grad, scaled), [0, 3]), _sum_to(b, grad, [0, 3])]
    return _masked(b, out, output_mask, [grad_input, *sums])


# Weight normalization: v scaled to the norm g, for each slice along ``dim``


def _other_dims(x: Val, dim: int) -> list[int]:
    return [i for i in range(x.ndim) if i != dim % x.ndim]


@emitter("aten._weight_norm_interface")
def weight_norm_interface(b: Builder, out: Any, v: Val, g: Val, dim: int = 0) -> list[Val]:
    direction = _wide(b, v)
    norm = b.sqrt(_sum_to(b, b.mul(direction, direction), _other_dims(v, dim)))
    scale = b.div(b.convert(g, norm.dtype), norm)
    return [finish(b, b.mul(direction, scale), out[0]), finish(b, norm, out[1])]


@emitter("aten._weight_norm_interface_backward")
def weight_norm_interface_backward(
    b: Builder, out: Any, grad_w: Val, saved_v: Val, saved_g: Val, saved_norms: Val, dim: int
) -> list[Val]:
    v, grad = _wide(b, saved_v), _wide(b, grad_w)
    g, norm = b.convert(saved_g, v.dtype), b.convert(saved_norms, v.dtype)
    product = _sum_to(b, b.mul(grad, v), _other_dims(v, dim))
    along = b.mul(v, b.div(product, b.mul(norm, norm)))
    grad_v = b.mul(b.sub(grad, along), b.div(g, norm))
    return [finish(b, grad_v, out[0]), finish(b, b.div(product, norm), out[1])]
