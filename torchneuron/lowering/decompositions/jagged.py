"""Jagged tensors: rows of several lengths one after the other, (L, ...), beside padded ones, (b, n, ...).

``offsets`` (b + 1,) tells where each of the b groups of rows begins and ends.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from torchneuron.lowering.registry import decomposition


@decomposition("aten._jagged_to_padded_dense_forward")
def padded_from_jagged(
    values: Tensor, offsets: Sequence[Tensor], max_lengths: Sequence[int], padding: float = 0.0
) -> Tensor:
    """Groups longer than ``max_lengths`` lose their last rows."""
    (ends,), (length,) = offsets, max_lengths
    row = ends[:-1, None] + torch.arange(length, dtype=ends.dtype, device=ends.device)
    inside = row < ends[1:, None]
    if values.shape[0] == 0:
        return values.new_full((*row.shape, *values.shape[1:]), padding)
    padded = values[row.clamp(0, values.shape[0] - 1)]
    return padded.masked_fill(~_beside(inside, padded), padding)


@decomposition("aten._padded_dense_to_jagged_forward")
def jagged_from_padded(
    padded: Tensor, offsets: Sequence[Tensor], total: int | None = None
) -> Tensor:
    """Rows of a group beyond the padded ones are zeros."""
    (ends,) = offsets
    assert total is not None, "eager mode looks it up first"
    row = torch.arange(total, dtype=ends.dtype, device=ends.device)
    group = torch.searchsorted(ends, row, right=True) - 1
    group = group.clamp(0, padded.shape[0] - 1)
    place = row - ends[group]
    inside = place < padded.shape[1]
    rows = padded[group, place.clamp(0, padded.shape[1] - 1)]
    return rows.masked_fill(~_beside(inside, rows), 0)


def _beside(mask: Tensor, rows: Tensor) -> Tensor:
    """The mask with a dimension of 1 for each that ``rows`` has more."""
    return mask.reshape(*mask.shape, *[1] * (rows.dim() - mask.dim()))
