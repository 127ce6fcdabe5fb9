"""Reordering ops that are rarely hot enough for an emitter."""

import torch

from torchneuron.lowering.registry import decomposition, use_stock_decomposition

use_stock_decomposition(
    "aten.block_diag",
    "aten.channel_shuffle",
    "aten.pixel_shuffle",
    "aten.pixel_unshuffle",
    "aten.rot90",
)


def _end(value: torch.Tensor | complex) -> torch.Tensor:
    return torch.as_tensor(value)


@decomposition(
    "aten.linspace.Tensor_Tensor", "aten.linspace.Tensor_Scalar", "aten.linspace.Scalar_Tensor"
)
def linspace(
    start: torch.Tensor | complex,
    end: torch.Tensor | complex,
    steps: int,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """Points between bounds that are tensors, counted from the nearer one."""
    first, last = _end(start), _end(end)
    target = dtype or torch.result_type(first, last)
    if not (target.is_floating_point or target.is_complex):
        target = torch.get_default_dtype() if dtype is None else dtype
    compute = target if target.is_floating_point or target.is_complex else torch.float32
    first, last = first.to(compute), last.to(compute)
    if steps < 2:
        return first.reshape(1).expand(steps).to(target)
    index = torch.arange(steps, device=first.device)
    step = (last - first) / (steps - 1)
    rising = first + step * index
    falling = last - step * (steps - 1 - index)
    return torch.where(index < steps // 2, rising, falling).to(target)


@decomposition(
    "aten.logspace.Tensor_Tensor", "aten.logspace.Tensor_Scalar", "aten.logspace.Scalar_Tensor"
)
def logspace(
    start: torch.Tensor | complex,
    end: torch.Tensor | complex,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """``base`` to the powers that ``linspace`` gives."""
    exponents = linspace(start, end, steps, dtype=dtype)
    whole = not (exponents.is_floating_point() or exponents.is_complex())
    powers = torch.pow(base, exponents.to(torch.float32) if whole else exponents)
    return powers.to(exponents.dtype)
