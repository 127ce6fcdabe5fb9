"""Linear algebra made of other linear algebra."""

import torch

from torchneuron.lowering.registry import decomposition


@decomposition("aten.cholesky")
def cholesky(x: torch.Tensor, upper: bool = False) -> torch.Tensor:
    # A program cannot raise: as with torch.linalg.cholesky in a graph, a matrix that is not
    # positive-definite goes unnoticed. Eagerly the errors are looked at (torchneuron.eager.composites).
    factor: torch.Tensor = torch.ops.aten.linalg_cholesky_ex(x, upper=upper)[0]
    return factor
