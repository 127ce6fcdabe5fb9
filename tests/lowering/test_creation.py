"""Points between two bounds, as PyTorch's CPU counts them."""

import pytest
import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten

# From whole bounds the step is none; from others the bounds are truncated first.
BOUNDS = [(50, 1, 50), (4.3, -3, 50), (0, 1.2, 4), (7, 7, 1), (-2.9, 2.9, 1), (3, 9, 0)]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.float64])
def test_points(dtype: torch.dtype) -> None:
    """linspace and logspace, from numbers and from tensors."""
    calls = []
    for start, end, steps in BOUNDS:
        ends = torch.tensor(start), torch.tensor(end)
        calls += [
            call(aten.linspace.default, start, end, steps, dtype=dtype),
            call(aten.linspace.Tensor_Tensor, *ends, steps, dtype=dtype),
        ]
        # The powers stay below what the dtype holds.
        low, high = start / 20, end / 20
        calls += [
            call(aten.logspace.default, low, high, steps, 2.0, dtype=dtype),
            call(
                aten.logspace.Tensor_Tensor,
                torch.tensor(low),
                torch.tensor(high),
                steps,
                2.0,
                dtype=dtype,
            ),
        ]
    check_ops(calls)
