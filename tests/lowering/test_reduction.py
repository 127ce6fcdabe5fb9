"""Reductions and softmax over dtypes and dimensions."""

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops, run_op

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
REDUCE_DIMS = (
    aten.sum.dim_IntList,
    aten.mean.dim,
    aten.amax.default,
    aten.amin.default,
    aten.logsumexp.default,
    aten.any.dims,
    aten.all.dims,
)
REDUCE_DIM = (
    aten.prod.dim_int,
    aten.max.dim,
    aten.min.dim,
    aten.argmax.default,
    aten.argmin.default,
    aten.any.dim,
    aten.all.dim,
)
REDUCE_ALL = (
    aten.sum.default,
    aten.mean.default,
    aten.prod.default,
    aten.max.default,
    aten.min.default,
    aten.any.default,
    aten.all.default,
    aten.argmax.default,
    aten.aminmax.default,
    aten.count_nonzero.default,
    aten.nansum.default,
)


def inputs() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 5)
    special = x.clone()
    special[0, 1, 2], special[2, 0, 0] = NAN, INF
    special[1, 2, :] = -INF
    return {
        "f32": x,
        "f64": x.double(),
        "bf16": x.bfloat16(),
        "f16": x.half(),
        "i64": torch.randint(-9, 9, (4, 6, 5)),
        "bool": x > 0.5,
        "complex": torch.randn(4, 6, 5, dtype=torch.complex64),
        "special": special,
    }


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


@pytest.mark.parametrize("name", list(inputs()))
def test_reductions(name: str) -> None:
    x = inputs()[name]
    calls = [call(op, x) for op in REDUCE_ALL]
    for keepdim in (False, True):
        for dims in ([0], [1, -1], []):
            # The CPU's logsumexp rounds each step in float16, we only the result.
            kinds = [
                op for op in REDUCE_DIMS if not (name == "f16" and op is aten.logsumexp.default)
            ]
            calls += [call(op, x, dims, keepdim) for op in kinds]
            calls += [call(aten.linalg_vector_norm.default, x, 2, dims, keepdim)]
        calls += [call(op, x, 1, keepdim) for op in REDUCE_DIM]
    calls += [call(aten.linalg_vector_norm.default, x, p, [1]) for p in (0, 1, INF, -INF, 3, 2.5)]
    calls += [call(aten.norm.Scalar, x, 2), call(aten.norm.ScalarOpt_dim, x, 1, [0, 1])]
    calls += [
        call(aten.sum.dim_IntList, x, [0], dtype=torch.float64),
        call(aten.trace.default, x[0]),
    ]
    calls += [call(op, x[:0]) for op in (aten.sum.default, aten.mean.default)]
    kept = accepted(calls)
    assert len(kept) > 30
    check_ops(kept)


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16", "complex"])
def test_spread(name: str) -> None:
    x = inputs()[name]
    calls = [
        call(op, x, dims, correction=correction, keepdim=keepdim)
        for op in (
            aten.var.correction,
            aten.std.correction,
            aten.var_mean.correction,
            aten.std_mean.correction,
        )
        for dims, correction, keepdim in (([0], 1, False), ([1, -1], 0, True), (None, 2.5, False))
    ]
    check_ops(accepted([*calls, call(aten.var.correction, x[:1], [0])]))


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "special"])
def test_softmax(name: str) -> None:
    x = inputs()[name]
    calls = [
        call(op, x, dim, False)
        for op in (aten._softmax.default, aten._log_softmax.default)
        for dim in (0, -1)
    ]
    masked = x.masked_fill(torch.ones(6, 1, dtype=torch.bool).tril(-4), -INF)
    check_ops([*calls, call(aten._safe_softmax.default, masked, -1)])


def test_softmax_gradients_keep_small_differences() -> None:
    # One weight is close to one: what its gradient differs from the mean by is what counts.
    torch.manual_seed(0)
    x = torch.randn(64, 5, dtype=torch.float64)
    x[:, 1] += 9
    y, grad = torch.softmax(x, 1), torch.randn(64, 5, dtype=torch.float64) * 5
    exact = aten._softmax_backward_data.default(grad, y, 1, torch.float64)
    result = run_op(
        aten._softmax_backward_data.default,
        grad.float(),
        y.float(),
        1,
        torch.float32,
        compare=False,
    )
    assert (result[:, 1].double() - exact[:, 1]).abs().max() < 2e-7 * exact[:, 1].abs().max()


def test_softmax_gradients_and_scalars() -> None:
    x = inputs()["f32"]
    y = torch.softmax(x, 1)
    check_ops(
        [
            call(aten._softmax_backward_data.default, x, y, 1, torch.float32),
            call(aten._log_softmax_backward_data.default, x, y.log(), 1, torch.float32),
            call(aten._softmax.default, torch.tensor(2.0), 0, False),
            call(aten._log_softmax.default, torch.tensor(2.0), 0, False),
            call(aten._softmax.default, torch.empty(2, 0), 0, False),
        ]
    )


@pytest.mark.parametrize("length", [2053, 1 << 17, 100003])
def test_long_sums_round_little(length: int) -> None:
    x = torch.rand(3, length, generator=torch.Generator().manual_seed(5))
    close = {"rtol": 1e-6, "atol": 0.0}
    check_ops(
        [
            Call(aten.sum.dim_IntList, (x, [1]), tolerances=close),
            Call(aten.sum.dim_IntList, (x, [0, 1], True), tolerances=close),
            Call(aten.sum.default, (x,), tolerances=close),
            call(aten.sum.default, (x * 100).long()),
        ]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.complex64])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((2049, 40), [0]),  # columns that nothing near 1024 divides
        ((997, 64), [0]),  # a prime number of rows
        ((4096, 33), [0]),
        ((64, 8, 48), [0, 1]),
        ((48, 64, 32), [1]),
        ((1, 64, 1, 96), [0, 1, 2]),
        ((24, 7, 50), [0, 2]),
        ((6, 40, 5, 40), [1, 3]),
        ((3, 5000), [1]),
    ],
)
def test_large_sums_go_by_rows_and_columns(
    shape: tuple[int, ...], dims: list[int], dtype: torch.dtype
) -> None:
    # Sums of whole numbers are exact in any order.
    x = torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    exact = {"rtol": 0.0, "atol": 0.0}
    check_ops(
        [
            Call(aten.sum.dim_IntList, arguments, tolerances=exact)
            for arguments in ((x, dims), (x, dims, True), (x.mT, dims[:1]))
        ]
    )


@pytest.mark.parametrize("at", [1, 1000])
def test_column_sums_spread_nothing(at: int) -> None:
    # They are products with ones: what is no number stays in its column.
    x = torch.full((1024, 64), -0.0)
    x[at, 3], x[at, 5], x[at, 7], x[at - 1, 7] = INF, NAN, INF, -INF
    x[at, 9] = 3e38
    run_op(aten.sum.dim_IntList, x, [0])
