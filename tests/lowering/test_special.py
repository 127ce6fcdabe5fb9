"""Special functions over float dtypes."""

import pytest
import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16]
INF, NAN = float("inf"), float("nan")


def points(dtype: torch.dtype) -> torch.Tensor:
    special = torch.tensor([0.0, 1, -1, 8, -8, 30, -5, 60, INF, NAN])
    return torch.cat([special, torch.linspace(-9, 20, 150)]).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions(dtype: torch.dtype) -> None:
    x = points(dtype)
    names = "special_i0e special_i1e special_erfcx special_spherical_bessel_j0 special_log_ndtr"
    calls = [call(getattr(aten, name).default, x) for name in names.split()]
    # Beyond some 20 the rounding of exp's argument shows in both.
    moderate = x[(x.abs() < 10) | ~x.isfinite()]
    calls += [call(getattr(aten, name).default, moderate) for name in ("i0", "special_i1")]
    check_ops([one for one in calls if _accepted(one)])


def _accepted(one: object) -> bool:
    try:
        one.op(*one.args)  # type: ignore[attr-defined]
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_polynomials(dtype: torch.dtype) -> None:
    x = torch.linspace(-1.5, 2, 15, dtype=dtype)[:, None]
    n = torch.arange(-1, 6)
    names = [f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"]
    names += ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"]
    calls = [
        call(getattr(aten, f"special_{name}").default, x, n)
        for name in [*names, "legendre_polynomial_p"]
    ]
    calls += [call(aten.special_hermite_polynomial_h.n_scalar, x, 4)]
    calls += [call(aten.special_legendre_polynomial_p.x_scalar, 0.3, n)]
    calls += [call(aten.special_zeta.default, x + 3, n + 2.5)]
    check_ops(calls)
