"""Where a tensor's elements lie, as the capture says it of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def laid_out(real: torch.Tensor, said: torch.Tensor, symbols: Mapping[Any, Any]) -> torch.Tensor:
    """``real`` with the strides of ``said``, of which ``symbols`` tells what the symbols stand for."""
    strides = [
        int(stride.node.expr.xreplace(symbols)) if isinstance(stride, torch.SymInt) else stride
        for stride in said.stride()
    ]
    if list(real.stride()) == strides:
        return real
    return torch.empty_strided(real.shape, strides, dtype=real.dtype, device=real.device).copy_(
        real
    )
