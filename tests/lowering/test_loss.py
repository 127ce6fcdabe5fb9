"""Losses and their gradients."""

from typing import Any

import torch

from tests.lowering.harness import Call, call, check_ops, run_op

aten = torch.ops.aten


def _op(name: str) -> Any:
    return getattr(aten, name).default


def _nll_calls(
    name: str, x: torch.Tensor, target: torch.Tensor, weight: Any, reduction: int
) -> list[Call]:
    options = (weight, reduction, 1)
    loss, total = _op(f"{name}_forward")(x, target, *options)
    grad = torch.randn_like(loss)
    return [
        call(_op(f"{name}_forward"), x, target, *options),
        call(_op(f"{name}_backward"), grad, x, target, *options, total),
    ]


def test_nll() -> None:
    torch.manual_seed(0)
    weight = torch.rand(5) + 0.1
    calls = []
    for reduction in (0, 1, 2):
        for w in (None, weight):
            calls += _nll_calls("nll_loss", torch.randn(6, 5), torch.randint(5, (6,)), w, reduction)
            image, labels = torch.randn(2, 5, 3, 4), torch.randint(5, (2, 3, 4))
            calls += _nll_calls("nll_loss2d", image, labels, w, reduction)
        calls += _nll_calls("nll_loss", torch.randn(5), torch.tensor(3), weight, reduction)
        narrow = torch.randn(6, 5).bfloat16()
        calls += _nll_calls("nll_loss", narrow, torch.randint(5, (6,)), None, reduction)
    calls += _nll_calls("nll_loss", torch.randn(3, 5), torch.ones(3, dtype=torch.int64), weight, 1)
    calls.append(
        call(_op("nll_loss_forward"), torch.randn(0, 5), torch.zeros(0).long(), None, 1, 1)
    )
    for one in calls:
        if one.args[0].dtype is torch.bfloat16 or one.args[1].dtype is torch.bfloat16:
            # The CPU adds up in bfloat16.
            one.tolerances.update(rtol=0.02, atol=0.02)
    check_ops(calls)


def test_a_class_that_does_not_exist_shows() -> None:
    x, target = torch.randn(2, 5), torch.tensor([7, 2])
    nan = (torch.tensor(float("nan")), torch.tensor(2.0))
    run_op(_op("nll_loss_forward"), x, target, None, 1, -100, expected=nan)


def test_regression() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    calls = []
    for reduction in (0, 1, 2):
        grad = torch.randn(4, 5) if reduction == 0 else torch.randn(())
        for name, parameter in (
            ("mse_loss", ()),
            ("smooth_l1_loss", (0.7,)),
            ("huber_loss", (0.7,)),
        ):
            calls.append(call(_op(name), x, y, reduction, *parameter))
            calls.append(call(_op(f"{name}_backward"), grad, x, y, reduction, *parameter))
    check_ops(calls)


def test_binary() -> None:
    torch.manual_seed(0)
    x, y, weight = torch.rand(4, 5), torch.rand(4, 5), torch.rand(5)
    x[0, 0], x[0, 1] = 0, 1
    sign = torch.randint(0, 2, (4, 5)).float() * 2 - 1
    calls = []
    for reduction in (0, 1, 2):
        grad = torch.randn(4, 5) if reduction == 0 else torch.randn(())
        calls += [
            call(_op("binary_cross_entropy"), x, y, weight, reduction),
            call(_op("binary_cross_entropy_backward"), grad, x, y, weight, reduction),
            call(
                _op("binary_cross_entropy_with_logits"), x * 9 - 4, y, weight, weight + 1, reduction
            ),
            call(_op("soft_margin_loss"), x, sign, reduction),
            call(_op("soft_margin_loss_backward"), grad, x, sign, reduction),
        ]
    check_ops(calls)


def test_margins() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, 5), torch.rand(5)
    target = torch.randint(5, (4,))
    labels = torch.tensor([[0, 2, -1, 3, 1], [4, -1, 0, 0, 0], [-1, 1, 2, 3, 4], [1, 0, 2, 3, 4]])
    calls = []
    for reduction in (0, 1, 2):
        grad = torch.randn(4) if reduction == 0 else torch.randn(())
        for p in (1, 2):
            options = (p, 0.8, weight, reduction)
            calls.append(call(_op("multi_margin_loss"), x, target, *options))
            calls.append(call(_op("multi_margin_loss_backward"), grad, x, target, *options))
        is_target = aten.multilabel_margin_loss_forward(x, labels, reduction)[1]
        calls.append(call(_op("multilabel_margin_loss_forward"), x, labels, reduction))
        calls.append(
            call(_op("multilabel_margin_loss_backward"), grad, x, labels, reduction, is_target)
        )
    check_ops(calls)
