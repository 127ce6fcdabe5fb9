"""The product behind bilinear layers, as forward and backward call it."""

import torch

from tests.lowering.harness import call, check_ops, run_op

aten = torch.ops.aten


def test_forward_and_gradients() -> None:
    torch.manual_seed(0)
    x, weight, y, grad = (
        torch.randn(5, 3),
        torch.randn(4, 3, 2),
        torch.randn(5, 2),
        torch.randn(5, 4),
    )
    # _trilinear itself is a composite on the CPU only: its own formula is the reference.
    cases = [
        (x, weight, y, [1, 3], [0], [1, 2], [2, 3]),
        (grad, weight, y, [2, 3], [0], [1, 2], [1, 3]),
        (x, grad, y, [1, 3], [2, 3], [1, 2], [0]),
        (x, weight, grad, [1, 3], [0], [2, 3], [1, 2]),
    ]
    check_ops([call(aten._trilinear.default, *case) for case in cases])


def test_affine_grid() -> None:
    theta = torch.randn(2, 2, 3)
    run_op(aten.affine_grid_generator.default, theta, [2, 3, 4, 5], False)
    run_op(aten.affine_grid_generator.default, torch.randn(2, 3, 4), [2, 1, 3, 4, 5], True)
