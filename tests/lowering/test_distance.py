"""Distances of pairs and their gradients."""

import pytest
import torch

from tests.lowering.harness import call, check_ops, lowers, run_op

aten = torch.ops.aten

NORMS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")]


def test_between_two_sets() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    y[:, 1] = x[:, 2]
    calls = []
    for p in NORMS:
        distances = aten._cdist_forward(x, y, p, None)
        calls.append(call(aten._cdist_forward.default, x, y, p, None))
        grad = torch.randn_like(distances)
        calls.append(call(aten._cdist_backward.default, grad, x, y, p, distances))
    wide, many = torch.randn(3, 4), torch.randn(30, 4)
    for mode in (None, 0, 1, 2):
        one = call(aten._cdist_forward.default, wide, many, 2.0, mode)
        # By matrix product the squares nearly cancel.
        one.tolerances.update(rtol=1e-4, atol=1e-4)
        calls.append(one)
    check_ops(calls)


def test_within_a_set() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3)
    x[4] = x[1]
    calls = []
    for p in NORMS[1:]:
        distances = aten._pdist_forward(x, p)
        calls.append(call(aten._pdist_forward.default, x, p))
        calls.append(
            call(aten._pdist_backward.default, torch.randn_like(distances), x, p, distances)
        )
    check_ops(calls)


@pytest.mark.parametrize("rows", [0, 1])
def test_no_pairs(rows: int) -> None:
    run_op(aten._pdist_forward.default, torch.randn(rows, 3), 2.0)


def test_too_many_pairs_are_left_to_the_cpu() -> None:
    assert not lowers(lambda: run_op(aten._pdist_forward.default, torch.randn(2000, 1), 2.0))
