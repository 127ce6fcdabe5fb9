"""The indices of sparse matrices in one layout from those in another."""

import torch

from torchneuron.lowering.registry import decomposition


@decomposition("aten._convert_indices_from_csr_to_coo")
def rows_from_compressed(
    crow: torch.Tensor, col: torch.Tensor, *, out_int32: bool = False, transpose: bool = False
) -> torch.Tensor:
    """``[batch dims + 2, elements]`` from ``crow`` ``[*batch, rows + 1]`` and ``col`` ``[*batch, nnz]``."""
    place = torch.arange(col.shape[-1], dtype=crow.dtype, device=crow.device)
    row = torch.searchsorted(crow.contiguous(), place.expand(col.shape).contiguous(), right=True)
    batch = []
    for dim, size in enumerate(col.shape[:-1]):
        shape = [1] * col.dim()
        shape[dim] = size
        batch.append(torch.arange(size, device=col.device).reshape(shape).expand(col.shape))
    row = row - 1
    pair = [col, row] if transpose else [row, col]
    dtype = torch.int32 if out_int32 else torch.int64
    return torch.stack([part.reshape(-1).to(dtype) for part in [*batch, *pair]])


@decomposition("aten._convert_indices_from_coo_to_csr")
def compressed_from_rows(x: torch.Tensor, size: int, *, out_int32: bool = False) -> torch.Tensor:
    """``[size + 1]``: how many of the sorted rows ``x`` come before each row, and all of them."""
    dtype = torch.int32 if out_int32 else torch.int64
    if x.numel() == 0:
        return torch.zeros(size + 1, dtype=dtype, device=x.device)
    row = torch.arange(size + 1, dtype=x.dtype, device=x.device)
    return torch.searchsorted(x.contiguous(), row).to(dtype)
