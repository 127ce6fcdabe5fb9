"""Fused optimizer steps against PyTorch's CPU kernels."""

from typing import Any

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops, run_op

aten = torch.ops.aten

_SHAPES = ((3,), (2, 40))


def state(dtype: torch.dtype, positive: bool = False) -> list[torch.Tensor]:
    values = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in _SHAPES]
    return [value.abs() for value in values] if positive else values


def steps() -> list[torch.Tensor]:
    return [torch.tensor(float(step)) for step in (1, 7)]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def scalings() -> list[dict[str, torch.Tensor]]:
    """Without scaling, with a scale, and with an overflow that skips the step."""
    scale = torch.tensor(4.0)
    return [
        {},
        {"grad_scale": scale, "found_inf": torch.tensor(0.0)},
        {"grad_scale": scale, "found_inf": torch.tensor(1.0)},
    ]


def adam_call(op: Any, dtype: torch.dtype, lr: Any, **options: Any) -> Call:
    amsgrad = options.get("amsgrad", False)
    settings = {
        "lr": lr,
        "beta1": 0.9,
        "beta2": 0.99,
        "weight_decay": 0.1,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }
    peaks = state(dtype, positive=True) if amsgrad else []
    lists = [state(dtype), state(dtype), state(dtype), state(dtype, positive=True), peaks, steps()]
    return call(op, *lists, **(settings | options))


@pytest.mark.parametrize("name", ["_fused_adam", "_fused_adamw"])
def test_adam(name: str) -> None:
    packet = getattr(aten, name)
    calls = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        calls.append(adam_call(packet.default, dtype, 0.01))
        calls.append(adam_call(packet.default, dtype, 0.01, amsgrad=True, maximize=True))
        calls.append(adam_call(packet.tensor_lr, dtype, torch.tensor(0.01)))
        calls += [adam_call(packet.default, dtype, 0.01, **scaling) for scaling in scalings()]
        calls.append(adam_call(packet.default, dtype, 0.01, weight_decay=0.0, beta1=0.3))
    check_ops(calls)
    check_ops(calls[:2], static_numbers=True)


def test_no_weight_decay_ignores_infinite_weights() -> None:
    adam = adam_call(aten._fused_adam.default, torch.float32, 0.01, weight_decay=0.0)
    adam.args[0][0][1] = float("inf")
    check_ops([adam])


def sgd_call(op: Any, dtype: torch.dtype, lr: Any, momentum: float, **options: Any) -> Call:
    settings = {
        "weight_decay": 0.1,
        "momentum": momentum,
        "lr": lr,
        "dampening": 0.2,
        "nesterov": False,
        "maximize": False,
        "is_first_step": False,
    }
    buffers = state(dtype) if momentum else []
    return call(op, state(dtype), state(dtype), buffers, **(settings | options))


def test_sgd() -> None:
    op, with_tensor = aten._fused_sgd.default, aten._fused_sgd.tensor_lr
    calls = []
    for dtype in (torch.float32, torch.float64):
        calls.append(sgd_call(op, dtype, 0.1, 0.0))
        calls.append(sgd_call(op, dtype, 0.1, 0.9))
        calls.append(sgd_call(op, dtype, 0.1, 0.9, is_first_step=True, maximize=True))
        calls.append(sgd_call(op, dtype, 0.1, 0.9, nesterov=True, dampening=0.0, weight_decay=0.0))
        calls.append(sgd_call(with_tensor, dtype, torch.tensor(0.1), 0.9))
        calls += [sgd_call(op, dtype, 0.1, 0.9, **scaling) for scaling in scalings()]
    check_ops(calls)


def test_sgd_of_narrow_floats() -> None:
    """Against float32: PyTorch's CPU kernel leaves float16 and bfloat16 parameters as they are."""
    for dtype in (torch.float16, torch.bfloat16):
        narrow = sgd_call(aten._fused_sgd.default, dtype, 0.1, 0.9)
        wide = [[value.float() for value in values] for values in narrow.args]
        exact = narrow.op(*wide, **narrow.kwargs)
        expected = [[value.to(dtype) for value in values] for values in exact]
        run_op(narrow.op, *narrow.args, expected=expected, **narrow.kwargs)


def adagrad_call(op: Any, dtype: torch.dtype, lr: Any, **options: Any) -> Call:
    settings = {"lr": lr, "lr_decay": 0.3, "weight_decay": 0.1, "eps": 1e-10, "maximize": False}
    lists = [state(dtype), state(dtype), state(dtype, positive=True), steps()]
    return call(op, *lists, **(settings | options))


def test_adagrad() -> None:
    calls = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        calls.append(adagrad_call(aten._fused_adagrad.default, dtype, 0.1))
        calls.append(
            adagrad_call(aten._fused_adagrad.default, dtype, 0.1, maximize=True, weight_decay=0.0)
        )
        calls.append(adagrad_call(aten._fused_adagrad.tensor_lr, dtype, torch.tensor(0.1)))
        calls += [
            adagrad_call(aten._fused_adagrad.default, dtype, 0.1, **scaling)
            for scaling in scalings()
        ]
    check_ops(calls)
