"""Activation functions and their gradients."""

from typing import Any

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops, run_op

aten = torch.ops.aten

INFINITY, NAN = float("inf"), float("nan")
# Every bound and kink of the functions, and what is beyond.
KINKS = torch.tensor(
    [-INFINITY, -30, -6, -3, -1, -0.5, -0.2, -0.0, 0, 0.2, 0.5, 1, 3, 6, 30, INFINITY, NAN]
)

# name, arguments after the input
FUNCTIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("silu", ()),
    ("mish", ()),
    ("log_sigmoid_forward", ()),
    ("softplus", (1, 20)),
    ("softplus", (2.0, 1.5)),
    ("gelu", ()),
    ("leaky_relu", (0.2,)),
    ("elu", (1.5, 1.0, 1.0)),
    ("elu", (1.67, 1.05, 0.5)),
    ("celu", (0.7,)),
    ("selu", ()),
    ("hardsigmoid", ()),
    ("hardswish", ()),
    ("hardtanh", ()),
    ("hardtanh", (-0.5, 3.0)),
    ("relu6", ()),
    ("hardshrink", (0.5,)),
    ("softshrink", (0.5,)),
    ("threshold", (0.2, 7.0)),
]
# name, arguments after the gradient and the input
GRADIENTS: list[tuple[str, tuple[Any, ...]]] = [
    ("sigmoid_backward", ()),
    ("tanh_backward", ()),
    ("silu_backward", ()),
    ("mish_backward", ()),
    ("softplus_backward", (1, 20)),
    ("softplus_backward", (2.0, 1.5)),
    ("gelu_backward", ()),
    ("threshold_backward", (0.2,)),
    ("leaky_relu_backward", (0.2, False)),
    ("hardsigmoid_backward", ()),
    ("hardswish_backward", ()),
    ("hardtanh_backward", (-0.5, 3.0)),
    ("hardshrink_backward", (0.5,)),
    ("softshrink_backward", (0.5,)),
]


def _op(name: str) -> Any:
    return getattr(aten, name).default


def _calls(x: torch.Tensor) -> list[Call]:
    grad = torch.randn(x.shape).to(x.dtype)
    calls = [call(_op(name), x, *args) for name, args in FUNCTIONS]
    calls += [call(_op(name), grad, x, *args) for name, args in GRADIENTS]
    calls += [
        call(_op("gelu"), x, approximate="tanh"),
        call(_op("gelu_backward"), grad, x, approximate="tanh"),
        call(_op("elu_backward"), grad, 1.67, 1.05, 0.5, False, x),
        call(_op("elu_backward"), grad, 1.67, 1.05, 0.5, True, x),
        call(_op("log_sigmoid_backward"), grad, x, torch.exp(-x.abs())),
        call(_op("_prelu_kernel"), x, torch.full((1,), 0.3, dtype=x.dtype)),
        call(_op("_prelu_kernel_backward"), grad, x, torch.full((1,), 0.3, dtype=x.dtype)),
    ]
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_ordinary_values(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check_ops(_calls((torch.randn(5, 7) * 3).to(dtype)))


def test_kinks() -> None:
    # The CPU's vector code and its scalar tail differ on infinities and NaNs: give it whole vectors only.
    x = torch.cat([KINKS[1:15]] * 2).repeat(4)
    check_ops(_calls(x))


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_infinities_and_nans() -> None:
    x = torch.tensor([-INFINITY, INFINITY, NAN, 0.0] * 8)
    names = {
        "silu",
        "leaky_relu",
        "hardtanh",
        "hardswish",
        "hardsigmoid",
        "softshrink",
        "hardshrink",
        "elu",
        "gelu",
    }
    # PyTorch's own kernels: oneDNN says gelu(inf) is NaN on some processors.
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=False):
        check_ops([call(_op(name), x, *args) for name, args in FUNCTIONS if name in names])


def test_complex_gradients() -> None:
    grad, y = torch.randn(4, dtype=torch.complex64), torch.randn(4, dtype=torch.complex64)
    check_ops([call(_op(name), grad, y) for name in ("sigmoid_backward", "tanh_backward")])


def test_integers() -> None:
    x = torch.arange(-5, 6)
    check_ops([call(_op("hardtanh"), x, -2, 3), call(_op("threshold_backward"), x + 9, x, 1)])


def test_glu() -> None:
    x = torch.randn(4, 6, 3)
    check_ops(
        [
            call(_op("glu"), x, 1),
            call(_op("glu"), x.bfloat16(), 0),
            call(_op("glu_backward"), torch.randn(4, 3, 3), x, 1),
            call(_op("glu_backward"), torch.randn(2, 6, 3), x, -3),
        ]
    )


def test_random_slopes() -> None:
    x = torch.cat([torch.randn(500) - 3, torch.rand(500)])
    noise = torch.zeros_like(x)
    result, slope = run_op(
        _op("rrelu_with_noise_functional"), x, noise, 0.1, 0.4, True, compare=False
    )
    assert torch.equal(result, x * slope)
    assert (slope[x > 0] == 1).all()
    drawn = slope[x <= 0]
    assert drawn.min() >= 0.1
    assert drawn.max() <= 0.4
    assert abs(drawn.mean() - 0.25) < 0.02
    check_ops(
        [
            call(_op("rrelu_with_noise_functional"), x, noise, 0.1, 0.4, False),
            call(
                _op("rrelu_with_noise_backward"), torch.randn(1000), x, slope, 0.1, 0.4, True, False
            ),
            call(
                _op("rrelu_with_noise_backward"),
                torch.randn(1000),
                x,
                slope,
                0.1,
                0.4,
                False,
                False,
            ),
        ]
    )
