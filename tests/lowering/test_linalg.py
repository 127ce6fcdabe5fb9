"""Linear algebra against PyTorch's CPU (LAPACK)."""

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops, run_op

aten = torch.ops.aten

_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def well_conditioned(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Random square matrices with a heavy diagonal."""
    return torch.randn(shape, dtype=dtype) + 2 * shape[-1] ** 0.5 * torch.eye(
        shape[-1], dtype=dtype
    )


def positive(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = torch.randn(shape, dtype=dtype)
    return x @ x.mH + shape[-1] * torch.eye(shape[-1], dtype=dtype)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_solve_triangular(dtype: torch.dtype) -> None:
    solve = aten.linalg_solve_triangular.default
    a = well_conditioned(2, 5, 5, dtype=dtype)
    tall, wide = torch.randn(2, 5, 3, dtype=dtype), torch.randn(2, 3, 5, dtype=dtype)
    calls: list[Call] = []
    for upper in (True, False):
        for unit in (True, False):
            scaled = a / 4 if unit else a
            calls.append(call(solve, scaled, tall, upper=upper, unitriangular=unit))
            calls.append(call(solve, scaled, wide, upper=upper, left=False, unitriangular=unit))
            for transpose in (True, False):
                old = aten.triangular_solve.default
                calls.append(call(old, tall, scaled, upper, transpose, unit))
    calls.append(call(solve, a[:1].expand(2, 5, 5), torch.randn(5, 1, dtype=dtype), upper=True))
    calls.append(
        call(solve, torch.randn(0, 0, dtype=dtype), torch.randn(0, 3, dtype=dtype), upper=True)
    )
    check_ops(calls)


@pytest.mark.parametrize("size", [33, 100])
def test_solve_triangular_by_blocks(size: int) -> None:
    solve = aten.linalg_solve_triangular.default
    calls = []
    for dtype in (torch.float32, torch.complex128):
        a = well_conditioned(2, size, size, dtype=dtype)
        calls.append(call(solve, a, torch.randn(2, size, 4, dtype=dtype), upper=False))
        calls.append(call(solve, a, torch.randn(2, 4, size, dtype=dtype), upper=True, left=False))
    check_ops(calls)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_cholesky(dtype: torch.dtype) -> None:
    factor = aten.linalg_cholesky_ex.default
    calls: list[Call] = []
    for shape in ((4, 4), (2, 3, 5, 5), (1, 1), (0, 0), (70, 70)):
        x = positive(*shape, dtype=dtype)
        calls += [call(factor, x), call(factor, x, upper=True)]
    lower = torch.linalg.cholesky(positive(2, 4, 4, dtype=dtype))
    rhs = torch.randn(2, 4, 3, dtype=dtype)
    calls += [
        call(aten.cholesky_solve.default, rhs, lower),
        call(aten.cholesky_inverse.default, lower),
    ]
    calls.append(call(aten.cholesky_solve.default, rhs, lower.mH.clone().resolve_conj(), True))
    calls.append(call(aten.cholesky_inverse.default, lower.mH.clone().resolve_conj(), True))
    check_ops(calls)


def test_cholesky_reports_the_failing_minor() -> None:
    bad = torch.stack([torch.eye(40), torch.eye(40), torch.eye(40)])
    bad[1, 3, 3] = -1.0
    bad[2, 35, 35] = 0.0
    info = run_op(aten.linalg_cholesky_ex.default, bad, compare=False)[1]
    assert info.tolist() == torch.linalg.cholesky_ex(bad).info.tolist() == [0, 4, 36]


def test_cross_and_matrix_exp() -> None:
    calls = []
    for dtype in (torch.float32, torch.int64, torch.complex64, torch.bfloat16):
        x, y = ((torch.randn(2, 3, 3) * 4).to(dtype) for _ in range(2))
        calls.append(call(aten.linalg_cross.default, x, y))
        calls.append(call(aten.linalg_cross.default, x, y[:1], dim=1))
    for dtype in _DTYPES:
        # In float32 the exponential of larger matrices is less exact than the comparison, on the CPU too.
        narrow = dtype in (torch.float32, torch.complex64)
        for scale in (0.1, 0.5) if narrow else (0.1, 1.0, 2.0):
            calls.append(
                call(aten.linalg_matrix_exp.default, scale * torch.randn(3, 4, 4, dtype=dtype))
            )
    calls.append(call(aten.linalg_matrix_exp.default, torch.zeros(2, 2)))
    check_ops(calls)


def lu_calls(x: torch.Tensor) -> list[Call]:
    calls = [call(aten.linalg_lu_factor_ex.default, x), call(aten.linalg_lu.default, x)]
    if x.numel():
        factors, pivots, _ = aten.linalg_lu_factor_ex.default(x)
        for flags in ((True, True), (False, True), (True, False)):
            calls.append(call(aten.lu_unpack.default, factors, pivots, *flags))
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_lu(dtype: torch.dtype) -> None:
    calls: list[Call] = []
    for shape in ((4, 4), (2, 3, 5, 5), (2, 3, 5), (5, 3), (1, 1), (0, 3)):
        calls += lu_calls(torch.randn(shape, dtype=dtype))
    check_ops(calls)


@pytest.mark.parametrize("shape", [(2, 70, 70), (40, 100), (100, 40)])
def test_lu_by_panels(shape: tuple[int, ...]) -> None:
    check_ops(lu_calls(torch.randn(shape, dtype=torch.float64)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_solving(dtype: torch.dtype) -> None:
    x = well_conditioned(2, 5, 5, dtype=dtype)
    tall, wide = torch.randn(2, 5, 3, dtype=dtype), torch.randn(2, 3, 5, dtype=dtype)
    factors, pivots, _ = aten.linalg_lu_factor_ex.default(x)
    calls = [
        call(aten._linalg_solve_ex.default, x, tall),
        call(aten._linalg_solve_ex.default, x, wide, left=False),
        call(aten._linalg_solve_ex.default, x, torch.randn(2, 5, dtype=dtype)),
        call(aten._linalg_solve_ex.default, x[0], torch.randn(5, dtype=dtype)),
        call(aten._linalg_solve_ex.default, x[0], torch.randn(3, 5, 2, dtype=dtype)),
        call(aten.linalg_inv_ex.default, x),
        call(aten.linalg_inv_ex.default, torch.empty(0, 0, dtype=dtype)),
    ]
    for adjoint in (True, False):
        calls.append(call(aten.linalg_lu_solve.default, factors, pivots, tall, adjoint=adjoint))
        calls.append(
            call(aten.linalg_lu_solve.default, factors, pivots, wide, left=False, adjoint=adjoint)
        )
    one = (factors[:1], pivots[:1])
    calls.append(call(aten.linalg_lu_solve.default, *one, torch.randn(3, 5, 2, dtype=dtype)))
    large = well_conditioned(50, 50, dtype=dtype)
    calls += [call(aten.linalg_inv_ex.default, large), call(aten._linalg_det.default, x)]
    calls += [call(aten._linalg_slogdet.default, x), call(aten._linalg_slogdet.default, large)]
    for op in (aten._linalg_det.default, aten._linalg_slogdet.default):
        calls += [call(op, torch.empty(2, 0, 0, dtype=dtype)), call(op, x.mT)]
    check_ops(calls)


def test_singular_matrices() -> None:
    x = torch.randn(3, 4, 4, dtype=torch.float64)
    x[1, :, 2] = 0.0
    info = run_op(aten.linalg_lu_factor_ex.default, x, compare=False)[2]
    assert info.tolist() == [0, 3, 0]
    check_ops([call(aten._linalg_det.default, x), call(aten._linalg_slogdet.default, x)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_qr(dtype: torch.dtype) -> None:
    calls: list[Call] = []
    for shape in ((4, 4), (2, 2, 5, 3), (3, 5), (1, 1), (0, 3), (3, 0)):
        x = torch.randn(shape, dtype=dtype)
        calls.append(call(aten.geqrf.default, x))
        calls += [call(aten.linalg_qr.default, x, mode) for mode in ("reduced", "complete", "r")]
    triangular = torch.randn(4, 4, dtype=dtype).triu()
    calls.append(call(aten.linalg_qr.default, triangular))
    calls.append(call(aten.linalg_qr.default, torch.zeros(3, 2, dtype=dtype)))
    check_ops(calls)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_reflections(dtype: torch.dtype) -> None:
    packed, tau = torch.geqrf(torch.randn(2, 5, 3, dtype=dtype))
    calls = [call(aten.linalg_householder_product.default, packed, tau)]
    calls.append(call(aten.linalg_householder_product.default, packed, tau[..., :2].contiguous()))
    for transpose in (True, False):
        tall, wide = torch.randn(2, 5, 2, dtype=dtype), torch.randn(2, 2, 5, dtype=dtype)
        calls.append(call(aten.ormqr.default, packed, tau, tall, True, transpose))
        calls.append(call(aten.ormqr.default, packed, tau, wide, False, transpose))
    check_ops(calls)
