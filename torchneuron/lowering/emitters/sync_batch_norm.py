"""The steps of batch normalization over several devices (nn.SyncBatchNorm): what lies between the collectives."""

from typing import Any

import torch
from torch import Tensor

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter, shape_rule


def _channels(x: Val) -> tuple[int, ...]:
    return tuple(size if dim == 1 else 1 for dim, size in enumerate(x.shape))


def _column(b: Builder, value: Val, x: Val) -> Val:
    """A value per channel, to broadcast over ``x``."""
    return b.reshape(b.convert(value, opmath(x.dtype)), _channels(x))


def _sum(b: Builder, x: Val) -> Val:
    """(C): the sum over all but the channels."""
    return b.reduce_sum(x, [dim for dim in range(x.ndim) if dim != 1])


def _inverse_root(b: Builder, variance: Val, eps: float) -> Val:
    return b.div(1, b.sqrt(b.add(variance, eps)))


def _statistic(x: Tensor) -> Tensor:
    return x.new_empty((x.shape[1],), dtype=opmath(x.dtype))


@shape_rule("aten.batch_norm_stats")
def _stats_shapes(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return _statistic(x), _statistic(x)


@emitter("aten.batch_norm_stats", static=("eps",))
def batch_norm_stats(b: Builder, out: Any, input: Val, eps: float) -> tuple[Val, Val]:
    """(mean, inverse deviation) of this device's batch"""
    x = b.convert(input, out[0].dtype)
    count = input.numel // input.shape[1]
    mean = b.div(_sum(b, x), count)
    centred = b.sub(x, _column(b, mean, x))
    return mean, _inverse_root(b, b.div(_sum(b, b.mul(centred, centred)), count), eps)


@shape_rule("aten.batch_norm_gather_stats_with_counts")
def _gathered_shapes(x: Tensor, mean: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return mean.new_empty((mean.shape[1],)), mean.new_empty((mean.shape[1],))


@emitter("aten.batch_norm_gather_stats_with_counts", static=("eps",))
def batch_norm_gather_stats(
    b: Builder,
    out: Any,
    input: Val,
    mean: Val,
    invstd: Val,
    running_mean: Val | None,
    running_var: Val | None,
    momentum: Val | Number,
    eps: float,
    counts: Val,
) -> tuple[Val, Val]:
    """(mean, inverse deviation) of all batches, from those of each: (devices, C) and (devices)."""
    if running_mean is not None or running_var is not None:
        reason = (
            "it updates running statistics without saying so; give it none and update them apart"
        )
        raise LoweringError("aten.batch_norm_gather_stats_with_counts", reason)
    sizes = b.reshape(b.convert(counts, mean.dtype), (counts.numel, 1))
    total = b.reduce_sum(sizes)
    middle = b.div(b.reduce_sum(b.mul(mean, sizes), [0]), total)
    variances = b.sub(b.div(1, b.mul(invstd, invstd)), eps)
    apart = b.sub(mean, b.reshape(middle, (1, middle.numel)))
    squares = b.reduce_sum(b.mul(b.add(variances, b.mul(apart, apart)), sizes), [0])
    return finish(b, middle, out[0]), finish(
        b, _inverse_root(b, b.div(squares, total), eps), out[1]
    )


@shape_rule("aten.batch_norm_elemt")
def _like_input(x: Tensor, *_: object, **__: object) -> Tensor:
    return torch.empty_like(x)


@emitter("aten.batch_norm_elemt", static=("eps",))
def batch_norm_elemt(
    b: Builder,
    out: Any,
    input: Val,
    weight: Val | None,
    bias: Val | None,
    mean: Val,
    invstd: Val,
    eps: float,
) -> Val:
    """``input`` normalized by the given statistics"""
    x = b.convert(input, opmath(input.dtype))
    x = b.mul(b.sub(x, _column(b, mean, input)), _column(b, invstd, input))
    if weight is not None:
        x = b.mul(x, _column(b, weight, input))
    if bias is not None:
        x = b.add(x, _column(b, bias, input))
    return finish(b, x, out)


@shape_rule("aten.batch_norm_backward_reduce")
def _reduced_shapes(
    grad_out: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor | None, ...]:
    sums = [torch.empty_like(mean) if input_g else None for _ in range(2)]
    like = mean if weight is None else weight
    return *sums, *(torch.empty_like(like) if wanted else None for wanted in (weight_g, bias_g))


@emitter("aten.batch_norm_backward_reduce")
def batch_norm_backward_reduce(
    b: Builder,
    out: Any,
    grad_out: Val,
    input: Val,
    mean: Val,
    invstd: Val,
    weight: Val | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> list[Val | None]:
    """This device's (sum of gradients, of gradients times deviations, gradients of weight and bias)"""
    grad, x = (b.convert(value, opmath(value.dtype)) for value in (grad_out, input))
    total = _sum(b, grad)
    product = _sum(b, b.mul(grad, b.sub(x, _column(b, mean, input))))
    to_weight = b.mul(product, b.convert(invstd, product.dtype))
    return [
        None if like is None else finish(b, value, like)
        for value, like in zip((total, product, to_weight, total), out, strict=True)
    ]


@shape_rule("aten.batch_norm_backward_elemt")
def _like_second(grad_out: Tensor, x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x)


@emitter("aten.batch_norm_backward_elemt")
def batch_norm_backward_elemt(
    b: Builder,
    out: Any,
    grad_out: Val,
    input: Val,
    mean: Val,
    invstd: Val,
    weight: Val | None,
    sum_dy: Val,
    sum_dy_xmu: Val,
    count: Val,
) -> Val:
    """The input's gradient, from the sums over all devices and how many elements each had"""
    grad, x = (b.convert(value, opmath(value.dtype)) for value in (grad_out, input))
    total = b.convert(b.reduce_sum(count), grad.dtype)
    inverse = _column(b, invstd, input)
    mean_grad = b.div(_column(b, sum_dy, input), total)
    along = b.mul(b.div(_column(b, sum_dy_xmu, input), total), b.mul(inverse, inverse))
    centred = b.sub(x, _column(b, mean, input))
    result = b.mul(b.sub(b.sub(grad, mean_grad), b.mul(centred, along)), inverse)
    if weight is not None:
        result = b.mul(result, _column(b, weight, input))
    return finish(b, result, out)
