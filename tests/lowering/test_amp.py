"""Gradient scaling against PyTorch's CPU kernels."""

import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten


def test_unscale() -> None:
    torch.manual_seed(0)
    unscale = aten._amp_foreach_non_finite_check_and_unscale.default
    good = [torch.randn(3), torch.randn(2, 5), torch.randn(()).bfloat16(), torch.empty(0)]
    bad = [torch.randn(3), torch.tensor([1.0, float("inf")])]
    nan = [torch.tensor([float("nan"), 2.0]).half(), torch.randn(4)]
    zero, one = torch.zeros(1), torch.ones(1)
    check_ops(
        [
            call(unscale, good, zero, torch.tensor([0.25])),
            call(unscale, good, one, torch.tensor(0.25)),
            call(unscale, bad, zero, torch.tensor([0.25])),
            call(unscale, nan, torch.zeros(()), one),
        ]
    )


def test_update_scale() -> None:
    update = aten._amp_update_scale.default
    calls = []
    for tracker in (0, 1, 2):
        for found in (0.0, 1.0):
            scale, successes = torch.tensor([1024.0]), torch.tensor([tracker], dtype=torch.int32)
            calls.append(call(update, scale, successes, torch.tensor([found]), 2.0, 0.5, 2))
    largest = torch.tensor([torch.finfo(torch.float32).max])
    calls.append(
        call(update, largest, torch.tensor([1], dtype=torch.int32), torch.zeros(1), 2.0, 0.5, 2)
    )
    check_ops(calls)
