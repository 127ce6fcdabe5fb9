"""Dropout: what is kept is scaled, and how much is dropped."""

import torch

from tests.lowering.harness import call, check_ops, run_op

aten = torch.ops.aten


def test_training() -> None:
    x = torch.randn(100, 100)
    for p in (0.25, 0.0, 1.0):
        result, mask = run_op(aten.native_dropout.default, x, p, True, compare=False, seed=3)
        scale = 1 / (1 - p) if p < 1 else 0
        torch.testing.assert_close(result, x * mask * scale)
        assert abs(mask.float().mean() - (1 - p)) < 0.02
    again = run_op(aten.native_dropout.default, x, 0.25, True, compare=False, seed=3)[1]
    other = run_op(aten.native_dropout.default, x, 0.25, True, compare=False, seed=4)[1]
    first = run_op(aten.native_dropout.default, x, 0.25, True, compare=False, seed=3)[1]
    assert torch.equal(again, first)
    assert not torch.equal(again, other)


def test_evaluation_and_gradient() -> None:
    x, mask = torch.randn(4, 5), torch.rand(4, 5) > 0.5
    check_ops(
        [
            call(aten.native_dropout.default, x, 0.5, False),
            call(aten.native_dropout_backward.default, x, mask, 1.25),
            call(aten.native_dropout_backward.default, x.bfloat16(), mask, 2.0),
        ]
    )
