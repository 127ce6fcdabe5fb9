"""Scans against the CPU, at the sizes where the number of block levels changes."""

import pytest
import torch

from tests.lowering.harness import call, check_ops, run_op

aten = torch.ops.aten


def numbers(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(*shape, dtype=torch.float64).to(dtype)
    return torch.randint(-3, 4, shape).to(dtype)


def test_cumsum_sizes():
    sizes = [0, 1, 2, 8, 16, 17, 64, 257, 1025]
    check_ops([call(aten.cumsum.default, numbers(n), 0) for n in sizes])


def test_cumsum_dims_and_layouts():
    x = numbers(3, 37, 5)
    check_ops(
        [
            *(call(aten.cumsum.default, x, dim) for dim in (0, 1, 2, -1)),
            call(aten.cumsum.default, x.transpose(0, 2), 1),
            call(aten.cumsum.default, x[:, ::2], 1),
            call(aten.cumsum.default, torch.tensor(2.5), 0),
            call(aten.cumsum.default, numbers(2, 0, 3), 1),
        ]
    )


@pytest.mark.parametrize("op", [aten.cumsum.default, aten.cumprod.default])
def test_dtypes(op):
    dtypes = [
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.complex64,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    ]
    calls = [call(op, numbers(2, 19, dtype=dtype), 1) for dtype in dtypes]
    calls.append(call(op, numbers(4, 20, dtype=torch.int32), 0, dtype=torch.float32))
    calls.append(call(op, numbers(20), 0, dtype=torch.float64))
    check_ops(calls)


def test_cumsum_keeps_earlier_elements_free_of_nan_and_inf():
    x = numbers(40)
    x[20], x[30] = float("inf"), float("nan")
    check_ops([call(aten.cumsum.default, x, 0), call(aten.cumprod.default, x, 0)])


def test_cumsum_of_many_elements():
    # Against float64: one block's error is that of pairwise summation.
    x = numbers(100_003)
    result = run_op(aten.cumsum.default, x, 0, compare=False)
    exact = x.double().cumsum(0)
    assert (result - exact).abs().max() < 1e-6 * x.abs().sum()


@pytest.mark.parametrize("op", [aten.cummax.default, aten.cummin.default])
def test_running_extremum(op):
    with_nan = numbers(50)
    with_nan[[7, 30]] = float("nan")
    with_inf = numbers(20)
    with_inf[0], with_inf[3] = float("-inf"), float("inf")
    check_ops(
        [
            call(op, numbers(70), 0),
            call(op, numbers(4, 33, 3, dtype=torch.int64), 1),
            call(op, numbers(33, dtype=torch.int8), 0),
            call(op, numbers(33, dtype=torch.bfloat16), 0),
            call(op, numbers(21, dtype=torch.bool), 0),
            call(op, with_nan, 0),
            call(op, with_inf, 0),
            call(op, torch.tensor(3.0), 0),
            call(op, numbers(0, 3), 0),
        ]
    )


def test_logcumsumexp():
    extreme = torch.tensor([float("-inf"), float("-inf"), 0.0, 1e4, -1e4, float("inf"), 1.0])
    check_ops(
        [
            call(aten.logcumsumexp.default, numbers(100), 0),
            call(aten.logcumsumexp.default, numbers(3, 20, 2), 1),
            call(aten.logcumsumexp.default, extreme, 0),
            call(aten.logcumsumexp.default, numbers(5, dtype=torch.float64), 0),
            call(aten.logcumsumexp.default, numbers(9, dtype=torch.bfloat16), 0),
        ]
    )


def test_composite_ops_on_scans():
    x, y = numbers(4, 6), numbers(4, 6).abs().cumsum(1)
    check_ops(
        [
            call(aten.diff.default, x, 2, 0),
            call(aten.diff.default, x, 1, -1, x[:, :1], x[:, :2]),
            call(aten.cumulative_trapezoid.x, x, y),
        ]
    )
