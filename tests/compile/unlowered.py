"""An operator without a lowering: a graph that calls it cannot be one program."""

import torch


@torch.library.custom_op("tn_failure::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """Has no lowering."""
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
