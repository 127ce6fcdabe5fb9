"""Custom operators of Hugging Face transformers.

Experts of mixtures take ``grouped_mm_fallback`` when TorchDynamo traces a model that is not in
bfloat16, because Inductor's ``_grouped_mm`` does not take other dtypes. Its own kernel reads the
groups' ends on the host, which no program can; ours takes every dtype.
"""

import torch
from torch import Tensor

from torchneuron.lowering.registry import decomposition


@decomposition("transformers.grouped_mm_fallback")
def grouped_mm(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """Rows of ``input`` (s, k) times the matrix of their group in ``weight`` (g, k, n).

    ``offs`` (g,) tells where each group ends; rows after the last group give zeros.
    """
    result: Tensor = torch._grouped_mm(input, weight, offs.to(torch.int32))
    return result


@decomposition("transformers.grouped_mm_fallback_backward")
def grouped_mm_backward(
    input: Tensor, weight: Tensor, offs: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of ``input`` and ``weight``; of a group without rows they are zeros."""
    ends = offs.to(torch.int32)
    grad_input = torch._grouped_mm(grad_output, weight.transpose(1, 2), ends)
    grad_weight = torch._grouped_mm(input.transpose(0, 1), grad_output, ends)
    return grad_input, grad_weight
