"""Ops that others already do, or nearly."""

import math
from collections.abc import Sequence

import torch

from torchneuron.lowering.registry import decomposition, use_stock_decomposition

use_stock_decomposition("aten._chunk_cat")


@decomposition("aten._aminmax")
def _aminmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.aminmax(x)


@decomposition("aten._aminmax.dim")
def _aminmax_dim(
    x: torch.Tensor, dim: int, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.aminmax(x, dim=dim, keepdim=keepdim)


@decomposition("aten._is_all_true")
def _is_all_true(x: torch.Tensor) -> torch.Tensor:
    return x.all()


@decomposition("aten._is_any_true")
def _is_any_true(x: torch.Tensor) -> torch.Tensor:
    return x.any()


@decomposition("aten._stack")
def _stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    return torch.stack(list(tensors), dim)


@decomposition("aten._lazy_clone")
def _lazy_clone(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@decomposition("aten._logcumsumexp")
def _logcumsumexp(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.logcumsumexp(x, dim)


@decomposition("aten._masked_scale", dynamic=("scale",))
def _masked_scale(x: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    return (x * mask.to(x.dtype) * scale).to(x.dtype)


@decomposition("aten._compute_linear_combination")
def _compute_linear_combination(x: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
    """Sum over the first dimension of ``x`` (k, ...) with each row of ``coefficients`` (n, k)."""
    return torch.einsum("nk,k...->n...", coefficients, x)


@decomposition("aten.linalg__powsum")
def linalg__powsum(
    x: torch.Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Sum of |x|^ord."""
    powers = (x if dtype is None else x.to(dtype)).abs().pow(ord)
    return powers.sum(list(dim) if dim is not None else list(range(x.dim())), keepdim)


# Forward-mode derivatives


@decomposition("aten.glu_jvp")
def glu_jvp(glu: torch.Tensor, x: torch.Tensor, dx: torch.Tensor, dim: int) -> torch.Tensor:
    _, gate = x.chunk(2, dim)
    tangent, gate_tangent = dx.chunk(2, dim)
    sigmoid = gate.sigmoid()
    return sigmoid * tangent + (glu - sigmoid * glu) * gate_tangent


@decomposition("aten.glu_backward_jvp")
def glu_backward_jvp(
    grad_x: torch.Tensor,
    grad_glu: torch.Tensor,
    x: torch.Tensor,
    dgrad_glu: torch.Tensor,
    dx: torch.Tensor,
    dim: int,
) -> torch.Tensor:
    value, gate = x.chunk(2, dim)
    tangent, gate_tangent = dx.chunk(2, dim)
    sigmoid = gate.sigmoid()
    slope = sigmoid * (1 - sigmoid)
    first = dgrad_glu * sigmoid + grad_glu * slope * gate_tangent
    bend = slope * (1 - 2 * sigmoid)
    second = (
        dgrad_glu * value + grad_glu * tangent
    ) * slope + grad_glu * value * bend * gate_tangent
    return torch.cat([first, second], dim)


# Selections of a known size


@decomposition("aten.masked_scatter_backward")
def masked_scatter_backward(
    grad: torch.Tensor, mask: torch.Tensor, sizes: Sequence[int]
) -> torch.Tensor:
    """The selected elements of ``grad`` one after the other, then zeros, as a tensor of ``sizes``."""
    shape = torch.broadcast_shapes(grad.shape, mask.shape)  # type: ignore[no-untyped-call]
    flat, chosen = grad.expand(shape).reshape(-1), mask.expand(shape).reshape(-1)
    count = math.prod(sizes)
    place = (torch.cumsum(chosen, 0) - 1).clamp(max=count)
    place = torch.where(chosen, place, count)
    return flat.new_zeros(count + 1).scatter(0, place, flat)[:count].reshape(list(sizes))
