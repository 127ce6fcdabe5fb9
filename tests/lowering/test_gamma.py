"""Incomplete gamma functions against PyTorch's CPU."""

import math

import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten


def test_incomplete_gamma() -> None:
    torch.manual_seed(0)
    special = torch.tensor(
        [0.0, 1e-3, 0.5, 1.0, 10.0, 11.0, 100.0, 1000.0, math.inf, -1.0, math.nan]
    )
    a, x = (grid.flatten() for grid in torch.meshgrid(special, special, indexing="ij"))
    calls = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        shape = torch.cat([a, torch.rand(200) * 30]).to(dtype)
        point = torch.cat([x, torch.rand(200) * 30]).to(dtype)
        calls.append(call(aten.igamma.default, shape, point))
        calls.append(call(aten.igammac.default, shape, point))
    calls.append(call(aten.igamma.default, torch.rand(3, 1), torch.rand(4)))
    check_ops(calls)
