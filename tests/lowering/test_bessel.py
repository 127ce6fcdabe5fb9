"""Bessel and Airy functions against PyTorch's CPU."""

import math

import torch

from tests.lowering.harness import Call, call, check_ops, run_op

aten = torch.ops.aten

_NAMES = (
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "airy_ai",
)


def points(dtype: torch.dtype) -> torch.Tensor:
    special = torch.tensor(
        [0.0, -0.0, 1e-8, 1e-3, 2.0, 8.0, 7.999, 100.0, 150.0, math.nan], dtype=dtype
    )
    return torch.cat([torch.linspace(-30, 30, 601, dtype=dtype), special])


def test_against_cpu() -> None:
    calls = []
    for name in _NAMES:
        op = getattr(aten, f"special_{name}").default
        calls.append(call(op, points(torch.float32)))
        # PyTorch's own error in float64 goes up to 3e-6.
        loose = {"atol": 3e-6, "rtol": 1e-6}
        calls.append(Call(op, (points(torch.float64),), tolerances=loose))
    check_ops(calls)


def test_float64_against_known_values() -> None:
    """At points where PyTorch is off by 1e-7 and more; values from mpmath."""
    known = {
        "bessel_j0": (5.1, -0.14433474706050065),
        "bessel_y1": (5.1, 0.11373644197749973),
        "airy_ai": (-2.2, 0.09614537800766888),
    }
    for name, (x, value) in known.items():
        op = getattr(aten, f"special_{name}").default
        expected = torch.tensor([value], dtype=torch.float64)
        run_op(op, torch.tensor([x], dtype=torch.float64), expected=expected, rtol=1e-14, atol=0.0)
