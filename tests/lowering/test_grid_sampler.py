"""Sampling by a grid and its gradients."""

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops

aten = torch.ops.aten

MODES = [0, 1, 2]
PADDINGS = [0, 1, 2]


def _calls(rank: int, mode: int, padding: int, corners: bool) -> list[Call]:
    forward = getattr(aten, f"grid_sampler_{rank}d")
    backward = getattr(aten, f"grid_sampler_{rank}d_backward")
    x = torch.randn(2, 3, *(5, 6, 4)[:rank])
    # Positions inside and far outside, none where a function has a kink.
    grid = torch.rand(2, *(3, 4, 2)[:rank], rank) * 5 - 2.5
    options = (mode, padding, corners)
    grad = torch.randn_like(forward(x, grid, *options))
    return [
        call(forward.default, x, grid, *options),
        call(backward.default, grad, x, grid, *options, [True, True]),
    ]


@pytest.mark.parametrize("padding", PADDINGS)
def test_planes(padding: int) -> None:
    torch.manual_seed(0)
    calls = [
        one
        for mode in MODES
        for corners in (False, True)
        for one in _calls(2, mode, padding, corners)
    ]
    for one in calls:
        # Positions are rounded differently, and the samples change with them.
        one.tolerances.update(rtol=1e-4, atol=3e-5)
    check_ops(calls)


def test_volumes() -> None:
    torch.manual_seed(0)
    calls = [
        one
        for mode in MODES[:2]
        for padding in PADDINGS
        for one in _calls(3, mode, padding, padding == 1)
    ]
    for one in calls:
        one.tolerances.update(rtol=1e-4, atol=3e-5)
    check_ops(calls)


def test_only_the_gradient_of_the_grid() -> None:
    x, grid, grad = torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2), torch.randn(1, 2, 3, 3)
    check_ops(
        [call(aten.grid_sampler_2d_backward.default, grad, x, grid, 0, 0, False, [False, True])]
    )
