"""Elementwise ops over dtypes and special values."""

from typing import Any

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops

aten = torch.ops.aten
F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
FLOATS = (F32, F64, BF16, F16)
INF, NAN = float("inf"), float("nan")
SPECIAL = [NAN, 1, -1, 0.0, -0.0, INF, -INF, 0.5, -0.5, 2.5, -3.5, 1e-3, 100, -100, 87, -87, 1e10]

UNARY = [
    "abs",
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "logit",
    "nan_to_num",
    "neg",
    "positive",
    "rad2deg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "bitwise_not",
]
# The CPU rounds every step of logit in the narrow dtype, we only the result.
NARROW_DIFFERS = {"logit"}
BINARY = [
    "add.Tensor",
    "sub.Tensor",
    "mul.Tensor",
    "div.Tensor",
    "floor_divide.default",
    "remainder.Tensor",
    "fmod.Tensor",
    "pow.Tensor_Tensor",
    "maximum.default",
    "minimum.default",
    "fmax.default",
    "fmin.default",
    "atan2.default",
    "hypot.default",
    "copysign.Tensor",
    "logaddexp.default",
    "logaddexp2.default",
    "xlogy.Tensor",
    "special_xlog1py.default",
    "heaviside.default",
    "eq.Tensor",
    "ne.Tensor",
    "lt.Tensor",
    "le.Tensor",
    "gt.Tensor",
    "ge.Tensor",
    "logical_and.default",
    "logical_or.default",
    "logical_xor.default",
    "nextafter.default",
]


def overload(name: str) -> Any:
    packet, kind = name.split(".")
    return getattr(getattr(aten, packet), kind)


def special(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.cat([torch.tensor(SPECIAL), torch.randn(100) * 3, torch.rand(100) * 2 - 1]).to(
        dtype
    )


def finite_complex() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(50, dtype=torch.complex64) * 2


def accepted(calls: list[Call]) -> list[Call]:
    """The calls that the CPU has a kernel for."""
    kept = []
    for one in calls:
        try:
            one.op(*one.args, **one.kwargs)
        except (RuntimeError, NotImplementedError):
            continue
        kept.append(one)
    return kept


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.int32, torch.uint8, torch.bool])
def test_unary(dtype: torch.dtype) -> None:
    if dtype.is_floating_point:
        x = special(dtype)
    elif dtype.is_complex:
        x = finite_complex()
    else:
        x = torch.arange(0 if dtype is torch.uint8 else -5, 6).to(dtype)
    calls = [
        call(getattr(aten, name).default, x)
        for name in UNARY
        if not (name in NARROW_DIFFERS and dtype in (F16, BF16))
    ]
    kept = accepted(calls)
    assert len(kept) > 12
    check_ops(kept)


@pytest.mark.parametrize("dtype", FLOATS)
def test_binary(dtype: torch.dtype) -> None:
    x = torch.tensor([NAN, 1, -1, 0.0, -0.0, INF, -INF, 2.5, -3.7, 1e-3], dtype=dtype)
    calls = accepted([call(overload(name), x[:, None], x[None]) for name in BINARY])
    assert len(calls) >= len(BINARY) - 1
    check_ops(calls)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8, torch.uint8])
def test_integer_arithmetic(dtype: torch.dtype) -> None:
    low = 0 if dtype is torch.uint8 else -7
    x = torch.arange(low, 8).to(dtype)[:, None]
    y = torch.tensor([1, 2, 3, 5, 7]).to(dtype)
    if dtype is not torch.uint8:
        y = torch.cat([y, -y])
    names = (
        "add.Tensor sub.Tensor mul.Tensor div.Tensor floor_divide.default remainder.Tensor "
        "fmod.Tensor maximum.default minimum.default gcd.default lcm.default bitwise_and.Tensor "
        "bitwise_or.Tensor bitwise_xor.Tensor eq.Tensor lt.Tensor copysign.Tensor atan2.default"
    )
    calls = [call(overload(name), x, y) for name in names.split()]
    calls += [call(aten.div.Tensor_mode, x, y, rounding_mode=mode) for mode in ("floor", "trunc")]
    # Beyond the bits that matter, and below zero.
    exponents = torch.tensor([0, 1, 2, 3, 9, 64, 71, 127] + [-1, -2, -3, -128] * (low < 0)).to(
        dtype
    )
    calls += [call(aten.pow.Tensor_Tensor, x, exponents)]
    calls += [call(aten.pow.Tensor_Scalar, x, p) for p in (3, 7, 100)]
    amounts = torch.arange(8 * dtype.itemsize).to(dtype)
    calls += [
        call(op, x, amounts)
        for op in (aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor)
    ]
    check_ops(calls)


def test_mixed_dtypes_promote() -> None:
    floats, ints, bools = torch.randn(2, 3), torch.arange(3), torch.tensor([True, False, True])
    numbers = torch.randn(3, dtype=torch.complex64)
    check_ops(
        [
            call(aten.add.Tensor, floats, ints, alpha=2),
            call(aten.add.Tensor, floats.bfloat16(), floats.half()),
            call(aten.add.Tensor, ints, torch.tensor(2.5)),
            call(aten.add.Tensor, ints.to(torch.int8), ints),
            call(aten.add.Tensor, bools, bools),
            call(aten.mul.Tensor, bools, bools),
            call(aten.mul.Tensor, numbers, floats),
            call(aten.add.Tensor, numbers, floats, alpha=2.5),
            call(aten.mul.Scalar, numbers, 2.5 + 1j),
            call(aten.div.Tensor, ints, ints + 1),
            call(aten.eq.Tensor, ints, floats),
            call(aten.eq.Tensor, numbers, floats[:1]),
            call(aten.where.self, bools, floats, ints),
        ]
    )


@pytest.mark.parametrize("static", [False, True])
def test_numbers(static: bool) -> None:
    x, ints = torch.randn(4, 6), torch.arange(24).view(4, 6)
    check_ops(
        [
            call(aten.add.Scalar, x, 2.5, 2),
            call(aten.sub.Scalar, ints, 2),
            call(aten.rsub.Scalar, x, 2, 1.5),
            call(aten.mul.Scalar, x.bfloat16(), 0.1),
            call(aten.div.Scalar, ints, 3),
            call(aten.div.Scalar_mode, ints - 9, 4, rounding_mode="floor"),
            call(aten.remainder.Scalar, ints - 9, 5),
            call(aten.remainder.Scalar, x, -0.7),
            call(aten.remainder.Scalar_Tensor, 7, ints + 1),
            call(aten.fmod.Scalar, x, 0.7),
            call(aten.pow.Scalar, 2, x),
            *(
                call(aten.pow.Tensor_Scalar, x.abs(), p)
                for p in (-2, -1, -0.5, 0, 0.5, 1, 2, 2.5, 3)
            ),
            call(aten.pow.Tensor_Scalar, finite_complex(), 2),
            call(aten.xlogy.Scalar_Other, x, 2.0),
            call(aten.bitwise_and.Scalar, ints, 5),
            call(aten.bitwise_left_shift.Tensor_Scalar, ints, 2),
            call(aten.gt.Scalar, ints, 2.5),
            call(aten.le.Scalar, x.bfloat16(), 0.1),
            call(aten.clamp.default, x, -0.5, 0.5),
            call(aten.clamp.default, ints, None, 7.5),
            call(aten.clamp_min.default, x, 0.25),
            call(aten.lerp.Scalar, x, x * 2, 0.7),
            call(aten.addcmul.default, x, x, x, value=0.3),
            call(aten.addcdiv.default, x, x, x + 5, value=2),
            call(aten.masked_fill.Scalar, x, x > 0, -1e9),
            call(aten.threshold.default, x, 0.1, 20.0),
            call(aten.logit.default, torch.rand(9), 0.2),
            call(aten.round.decimals, x, decimals=2),
            call(aten.round.decimals, x * 100, decimals=-1),
            call(aten.nan_to_num.default, special(F32), 1.0, 2.0, 3.0),
        ],
        static_numbers=static,
    )


def test_tensor_bounds_and_weights() -> None:
    x = torch.randn(4, 6)
    check_ops(
        [
            call(aten.clamp.Tensor, x, x - 1, None),
            call(aten.clamp.Tensor, x, torch.zeros(6), torch.ones(4, 1)),
            call(aten.clamp_max.Tensor, x, torch.zeros(())),
            call(aten.lerp.Tensor, x, x * 2, torch.rand(4, 6)),
            call(aten.masked_fill.Tensor, x, x > 0, torch.tensor(3)),
            call(aten.polar.default, x.abs(), x),
            call(aten.complex.default, x, x),
            call(aten.polygamma.default, 1, special(F32)[17:]),
            call(aten.polygamma.default, 0, x),
        ]
    )


def test_gradients() -> None:
    x, probability = torch.randn(4, 6), torch.rand(4, 6) * 1.4 - 0.2
    check_ops(
        [
            call(aten.sigmoid_backward.default, x, x.sigmoid()),
            call(aten.tanh_backward.default, x.bfloat16(), x.tanh().bfloat16()),
            call(aten.threshold_backward.default, x, x, 0),
            call(aten.logit_backward.default, x, probability, 0.1),
            call(aten.logit_backward.default, x, probability),
        ]
    )


def test_in_terms_of_others() -> None:
    x = torch.randn(4, 6)
    check_ops(
        [
            call(aten.special_entr.default, torch.tensor([-1, 0, 0.5, 2, NAN])),
            call(aten.special_ndtri.default, torch.tensor([0, 0.001, 0.5, 0.9, 1, 2])),
            call(aten.ldexp.Tensor, x, torch.arange(6)),
            call(aten.mvlgamma.default, x.abs() + 3, 3),
            call(aten.dist.default, x, x * 2, 2),
            call(aten.renorm.default, x, 2, 1, 1.5),
            call(aten._add_relu.Tensor, x, x),
            call(torch.ops.prims.add.default, x, x),
            call(torch.ops.prims.broadcast_in_dim.default, x, [2, 4, 6], [1, 2]),
        ]
    )
