"""Fractional max pooling: windows begin where random samples, an argument of the op, say."""

import torch

from torchneuron.lowering.registry import decomposition

Pair = tuple[torch.Tensor, torch.Tensor]


@decomposition("aten.fractional_max_pool2d")
def fractional_max_pool2d(
    x: torch.Tensor, kernel_size: list[int], output_size: list[int], random_samples: torch.Tensor
) -> Pair:
    # The first of the two samples of a plane is the width's.
    return _pool(x, kernel_size, output_size, random_samples.flip(-1))


@decomposition("aten.fractional_max_pool3d")
def fractional_max_pool3d(
    x: torch.Tensor, kernel_size: list[int], output_size: list[int], random_samples: torch.Tensor
) -> Pair:
    return _pool(x, kernel_size, output_size, random_samples)


@decomposition("aten.fractional_max_pool2d_backward", "aten.fractional_max_pool3d_backward")
def fractional_max_pool_backward(
    grad_output: torch.Tensor,
    x: torch.Tensor,
    kernel_size: list[int],
    output_size: list[int],
    indices: torch.Tensor,
) -> torch.Tensor:
    first = x.dim() - len(kernel_size)
    zeros = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(first)
    return zeros.scatter_add(-1, indices.flatten(first), grad_output.flatten(first)).view(x.shape)


def _pool(x: torch.Tensor, kernel: list[int], output: list[int], samples: torch.Tensor) -> Pair:
    """(largest values, their indices in the plane) of x (N, C, sizes...) or (C, sizes...).

    ``samples`` (N, C, dimensions) are in the order of the dimensions.
    """
    rank = len(kernel)
    batched = x if x.dim() == rank + 2 else x.unsqueeze(0)
    sizes = batched.shape[2:]
    index = torch.zeros((), dtype=torch.int64, device=x.device)
    for d in range(rank):
        starts = _starts(samples[..., d], sizes[d], output[d], kernel[d])
        places = starts.unsqueeze(-1) + torch.arange(kernel[d], device=x.device)
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = output[d], kernel[d]
        index = index * sizes[d] + places.view(*places.shape[:2], *shape)
    index = index.expand(*batched.shape[:2], *output, *kernel).flatten(2 + rank)
    windows = batched.flatten(2).gather(2, index.flatten(2)).view(index.shape)
    choice = _choose(windows)
    values, indices = (t.gather(-1, choice).squeeze(-1) for t in (windows, index))
    return (values, indices) if batched is x else (values.squeeze(0), indices.squeeze(0))


def _starts(sample: torch.Tensor, size: int, output: int, kernel: int) -> torch.Tensor:
    """Where the windows begin: (N, C, output) for ``sample`` (N, C), rounded as in its dtype."""
    sample = sample.unsqueeze(-1)
    last = torch.full_like(sample, size - kernel, dtype=torch.int64)
    if output == 1:
        return last
    alpha = torch.full_like(sample, size - kernel) / torch.full_like(sample, output - 1)
    steps = torch.arange(output - 1, dtype=sample.dtype, device=sample.device)
    starts = ((steps + sample) * alpha).to(torch.int64) - (sample * alpha).to(torch.int64)
    return torch.cat([starts, last], -1)


def _choose(windows: torch.Tensor) -> torch.Tensor:
    """The first of the largest elements, or the last NaN, along the last dimension, which is kept."""
    nan = windows.isnan()
    last_nan = windows.shape[-1] - 1 - nan.flip(-1).to(torch.int32).argmax(-1, keepdim=True)
    return torch.where(nan.any(-1, keepdim=True), last_nan, windows.argmax(-1, keepdim=True))
