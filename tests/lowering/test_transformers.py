"""The custom operators of Hugging Face transformers, against their own kernels."""

import pytest
import torch
import transformers.integrations.moe  # noqa: F401  registers them

from tests.lowering.harness import run_op

OPS = torch.ops.transformers
# Of four groups one is empty; the last row belongs to none.
ENDS = torch.tensor([3, 3, 7, 9], dtype=torch.int32)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_grouped_products(dtype: torch.dtype, transposed: bool) -> None:
    rows, grad = torch.randn(10, 6, dtype=dtype), torch.randn(10, 5, dtype=dtype)
    weights = torch.randn(4, 6, 5, dtype=dtype)
    if transposed:
        weights = torch.randn(4, 5, 6, dtype=dtype).transpose(1, 2)
    run_op(OPS.grouped_mm_fallback.default, rows, weights, ENDS)
    run_op(OPS.grouped_mm_fallback.default, rows, weights, ENDS.long())
    run_op(OPS.grouped_mm_fallback_backward.default, rows, weights, ENDS, grad)
