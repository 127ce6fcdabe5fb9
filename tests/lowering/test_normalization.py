"""Normalizations and their gradients."""

from typing import Any

import pytest
import torch

from tests.lowering.harness import call, check_ops, run_op

aten = torch.ops.aten

SHAPES = [(4, 3, 5, 6), (4, 3), (2, 4, 8, 16), (3, 5, 7)]
ALL = [True, True, True]


def _op(name: str) -> Any:
    return getattr(aten, name).default


def _parameters(count: int, number: int = 2) -> list[torch.Tensor]:
    return [torch.rand(count) + 0.5 for _ in range(number)]


def test_batch_norm_training() -> None:
    torch.manual_seed(0)
    calls = []
    for shape in SHAPES:
        x, grad = torch.randn(shape) + 2, torch.randn(shape)
        weight, bias, mean, variance = _parameters(shape[1], 4)
        calls += [
            call(
                _op("_native_batch_norm_legit_functional"),
                x,
                weight,
                bias,
                mean,
                variance,
                True,
                0.1,
                1e-5,
            ),
            call(aten._native_batch_norm_legit.no_stats, x, None, bias, True, 0.1, 1e-5),
            call(_op("native_batch_norm"), x, weight, None, None, None, True, 0.3, 1e-3),
            call(
                _op("_batch_norm_with_update_functional"),
                x,
                weight,
                bias,
                mean,
                variance,
                0.2,
                1e-5,
            ),
        ]
        _, saved_mean, inverse = aten.native_batch_norm(
            x, weight, bias, None, None, True, 0.1, 1e-5
        )
        saved = (None, None, saved_mean, inverse, True, 1e-5)
        calls += [
            call(_op("native_batch_norm_backward"), grad, x, weight, *saved, ALL),
            call(_op("native_batch_norm_backward"), grad, x, None, *saved, [True, False, False]),
        ]
    check_ops(calls)


def test_batch_norm_evaluation() -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(4, 3, 5, 6), torch.randn(4, 3, 5, 6)
    weight, bias, mean, variance = _parameters(3, 4)
    result = aten.native_batch_norm(x, weight, bias, mean, variance, False, 0.1, 1e-5)[0]
    # The statistics that evaluation saves are empty on the CPU, but not on other devices.
    saved = (mean, 1 / torch.sqrt(variance + 1e-5))
    arguments = (x, weight, bias, mean, variance)
    run_op(_op("native_batch_norm"), *arguments, False, 0.1, 1e-5, expected=(result, *saved))
    run_op(
        _op("_native_batch_norm_legit_functional"),
        *arguments,
        False,
        0.1,
        1e-5,
        expected=(result, *saved, mean, variance),
    )
    check_ops(
        [
            call(
                _op("native_batch_norm_backward"),
                grad,
                x,
                weight,
                mean,
                variance,
                None,
                None,
                False,
                1e-5,
                ALL,
            )
        ]
    )


def test_layer_norm() -> None:
    torch.manual_seed(0)
    calls = []
    for shape, count in [((4, 6), 1), ((2, 3, 128), 1), ((3, 4, 5), 2), ((5,), 1), ((0, 4), 1)]:
        normalized = list(shape[-count:])
        x, grad = torch.randn(shape) + 1, torch.randn(shape)
        weight, bias = torch.rand(normalized), torch.rand(normalized)
        calls += [
            call(_op("native_layer_norm"), x, normalized, weight, bias, 1e-5),
            call(_op("native_layer_norm"), x, normalized, None, None, 1e-2),
        ]
        _, mean, inverse = aten.native_layer_norm(x, normalized, weight, bias, 1e-5)
        saved = (grad, x, normalized, mean, inverse)
        calls += [
            call(_op("native_layer_norm_backward"), *saved, weight, bias, ALL),
            call(_op("native_layer_norm_backward"), *saved, None, None, [True, False, False]),
        ]
    check_ops(calls)


def test_rms_norm() -> None:
    torch.manual_seed(0)
    calls = []
    for shape, count in [((4, 6), 1), ((2, 3, 64), 1), ((3, 4, 5), 2)]:
        normalized = list(shape[-count:])
        x, weight = torch.randn(shape) * 1e-3, torch.rand(normalized)
        calls += [
            call(_op("_fused_rms_norm"), x, normalized, weight, None),
            call(_op("_fused_rms_norm"), x, normalized, None, 1e-5),
            call(_op("_fused_rms_norm"), x.bfloat16(), normalized, weight.bfloat16(), None),
        ]
    check_ops(calls)


def test_rms_norm_gradient() -> None:
    # The CPU has no kernel of the gradient, but it has the formula.
    x, weight = torch.randn(2, 3, 64, requires_grad=True), torch.rand(64, requires_grad=True)
    grad = torch.randn(2, 3, 64)
    inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    expected = torch.autograd.grad(x * inverse * weight, (x, weight), grad)
    operands = (grad, x.detach(), [64], inverse.detach(), weight.detach())
    run_op(_op("_fused_rms_norm_backward"), *operands, [True, True], expected=expected)


@pytest.mark.parametrize("shape", [(2, 6, 4, 5), (3, 4), (2, 4, 64)])
def test_group_norm(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(shape) + 1, torch.randn(shape)
    sizes = (shape[0], shape[1], x[0, 0].numel())
    weight, bias = _parameters(shape[1])
    calls = []
    for groups in (1, 2, shape[1]):
        if x[0, 0].numel() * shape[1] == groups:
            continue
        calls.append(call(_op("native_group_norm"), x, weight, bias, *sizes, groups, 1e-5))
        _, mean, inverse = aten.native_group_norm(x, weight, bias, *sizes, groups, 1e-5)
        saved = (grad, x, mean, inverse, weight)
        calls.append(call(_op("native_group_norm_backward"), *saved, *sizes, groups, ALL))
    check_ops(calls)


def test_weight_norm() -> None:
    torch.manual_seed(0)
    calls = []
    for dim, shape in [(0, (4, 3, 2)), (2, (4, 3, 5))]:
        v, grad = torch.randn(shape), torch.randn(shape)
        g = torch.rand([size if i == dim else 1 for i, size in enumerate(shape)])
        norms = aten._weight_norm_interface(v, g, dim)[1]
        calls += [
            call(_op("_weight_norm_interface"), v, g, dim),
            call(_op("_weight_norm_interface_backward"), grad, v, g, norms, dim),
        ]
    check_ops(calls)


def test_narrow_floats_are_rounded_once() -> None:
    torch.manual_seed(0)
    x = (torch.randn(4, 3, 5, 6) + 2).bfloat16()
    weight, bias = _parameters(3)
    check_ops(
        [
            call(aten._native_batch_norm_legit.no_stats, x, weight, bias, True, 0.1, 1e-5),
            call(_op("native_layer_norm"), x, [5, 6], torch.rand(5, 6), None, 1e-5),
            call(
                _op("native_group_norm"),
                x,
                *[w.bfloat16() for w in (weight, bias)],
                4,
                3,
                30,
                3,
                1e-5,
            ),
        ]
    )


def test_constant_input_is_normalized_to_zero() -> None:
    x = torch.full((4, 3, 2, 2), 7.0)
    zeros, means = torch.zeros_like(x), torch.full((3,), 7.0)
    inverse = torch.full((3,), 1e-5).rsqrt()
    run_op(
        aten._native_batch_norm_legit.no_stats,
        x,
        None,
        None,
        True,
        0.1,
        1e-5,
        expected=(zeros, means, inverse),
    )
