"""Hurwitz zeta, polygamma and the inverse of erf, on both sides of zero and far out."""

import pytest
import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten
REAL = [torch.float32, torch.float64]
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", REAL)
def test_zeta(dtype: torch.dtype) -> None:
    x = torch.tensor([1, 0.5, 2, 2.5, 3, 4, 51, NAN], dtype=dtype)[:, None]
    q = torch.tensor([2, 0.25, 0, -0.0, -2, -0.5, -3.25, -12.125, INF, -INF, NAN], dtype=dtype)
    check_ops([call(aten.special_zeta.default, x, q)])


@pytest.mark.parametrize("dtype", REAL)
def test_polygamma(dtype: torch.dtype) -> None:
    # Eighths: 0.5 for its zero by symmetry, none close to the zeros of higher orders.
    x = torch.arange(-80, 40, dtype=dtype) / 8
    x = torch.cat([x, torch.tensor([INF, -INF, NAN, 1e-3, -1e-3], dtype=dtype)])
    check_ops([call(aten.polygamma.default, n, x) for n in range(2, 6)])


@pytest.mark.parametrize("dtype", REAL)
def test_erfinv(dtype: torch.dtype) -> None:
    near_one = 1 - torch.logspace(-7, -1, 50, dtype=dtype)
    x = torch.cat([near_one, -near_one, torch.linspace(-1.1, 1.1, 45, dtype=dtype)])
    check_ops([call(aten.erfinv.default, x)])
