"""Convolution in another layout."""

import torch
from torch import Tensor

from torchneuron.lowering.registry import decomposition, shape_rule


@decomposition("aten.conv_tbc")
def conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """(time, batch, channels) with (taps, channels, outputs)."""
    options = ([1], [pad], [1], False, [0], 1)
    result: Tensor = torch.ops.aten.convolution(
        x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, *options
    )
    return result.permute(2, 0, 1)


# PyTorch gives these two, which only devices like ours use, no shape inference of their own.


@shape_rule("aten.convolution_overrideable")
def _overrideable_shape(*args: object, **kwargs: object) -> Tensor:
    result: Tensor = torch.ops.aten.convolution(*args, **kwargs)
    return result


@shape_rule("aten.convolution_backward_overrideable")
def _overrideable_backward_shapes(
    grad_output: Tensor, x: Tensor, weight: Tensor, *args: object
) -> tuple[Tensor | None, ...]:
    mask = args[-1]
    assert isinstance(mask, (list, tuple))
    bias = weight.new_empty((grad_output.shape[1],))
    gradients = (torch.empty_like(x), torch.empty_like(weight), bias)
    return tuple(value if wanted else None for value, wanted in zip(gradients, mask, strict=True))
