"""The product of three tensors that bilinear layers sum over."""

from collections.abc import Sequence

import torch
from torch import Tensor

from torchneuron.lowering.registry import decomposition


@decomposition("aten._trilinear")
def trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The sum over ``sumdim`` of i1 * i2 * i3, each with dimensions of size 1 put in where ``expandN`` says.

    Two products are matrix products: what only the first two tensors have is summed first.
    """
    rank = i1.dim() + len(expand1)
    letters = [chr(ord("a") + dim) for dim in range(rank)]
    names = [
        [letters[dim] for dim in range(rank) if dim not in expanded]
        for expanded in (expand1, expand2, expand3)
    ]
    result = [letters[dim] for dim in range(rank) if dim not in sumdim]
    pair = [x for x in letters if x in names[0] + names[1] and x in result + names[2]]
    both = torch.einsum(f"{''.join(names[0])},{''.join(names[1])}->{''.join(pair)}", i1, i2)
    kept = "".join(x for x in result if x in pair + names[2])
    return torch.einsum(f"{''.join(pair)},{''.join(names[2])}->{kept}", both, i3)
