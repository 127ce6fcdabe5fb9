"""Sorting and order statistics against the CPU."""

import pytest
import torch

from tests.lowering.harness import call, check_ops, run_op

aten = torch.ops.aten
nan, inf = float("nan"), float("inf")


def noise(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    if dtype.is_floating_point:
        return torch.randn(*shape, dtype=torch.float64).to(dtype)
    return torch.randint(-(2**40), 2**40, shape).to(dtype)


SPECIAL = torch.tensor([1.0, nan, -0.0, inf, 0.0, -inf, nan, -1.0, 0.0, -0.0, 1e-30, -1e-30])


def stable(x, dim=-1, descending=False):
    return call(aten.sort.stable, x, stable=True, dim=dim, descending=descending)


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending):
    dtypes = [torch.float64, torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16]
    dtypes += [torch.bfloat16, torch.float16, torch.bool]
    x = noise(3, 17, 4)
    check_ops(
        [
            *(stable(noise(40, dtype=dtype), 0, descending) for dtype in dtypes),
            *(stable(x, dim, descending) for dim in (0, 1, 2)),
            stable(x.transpose(0, 2), -1, descending),
            stable(SPECIAL, 0, descending),
            stable(SPECIAL.double(), 0, descending),
            stable(SPECIAL.bfloat16(), 0, descending),
            stable(torch.tensor([2**63 - 1, -(2**63), 0, -1, 2**32, 5, 5]), 0, descending),
            stable(torch.tensor(2.0), 0, descending),
            stable(noise(1, 3), 0, descending),
            stable(noise(0, 3), 0, descending),
            call(aten.sort.default, x, 1, descending),
            call(aten.argsort.stable, x, stable=True, dim=1, descending=descending),
        ]
    )


def test_sort_of_many_elements():
    x = torch.randint(0, 1000, (7_007,))
    check_ops([stable(x), stable(x.float()), call(aten.msort.default, x.reshape(-1, 7))])


@pytest.mark.parametrize("largest", [False, True])
def test_topk(largest):
    x = noise(4, 64, 3)
    with_nan = noise(80)
    with_nan[3] = nan
    check_ops(
        [
            call(aten.topk.default, x, 5, 1, largest),
            call(aten.topk.default, x, 33, 1, largest),
            call(aten.topk.default, x, 2, -1, largest, False),
            call(aten.topk.default, noise(100), 1, 0, largest),
            call(aten.topk.default, with_nan, 5, 0, largest),
            call(aten.topk.default, noise(64, dtype=torch.int32), 3, 0, largest),
            call(aten.topk.default, noise(64, dtype=torch.int64), 3, 0, largest),
            call(aten.topk.default, noise(64, dtype=torch.float64), 3, 0, largest),
            call(aten.topk.default, torch.tensor(2.0), 1, 0, largest),
            call(aten.topk.default, noise(4, 3), 0, 1, largest),
            call(aten.topk.default, torch.arange(-40, 40).to(torch.int8), 3, 0, largest),
            call(aten.topk.default, torch.randperm(200).bfloat16(), 4, 0, largest),
        ]
    )


def test_topk_takes_the_first_of_equals():
    expected = torch.zeros(3), torch.arange(3)
    zeros = torch.zeros(40)
    zeros[1] = -0.0
    for largest in (True, False):
        run_op(aten.topk.default, zeros, 3, 0, largest, expected=expected)


def test_kthvalue():
    x = noise(5, 31, 2)
    check_ops(
        [
            call(aten.kthvalue.default, x, 1, 1),
            call(aten.kthvalue.default, x, 31, 1, True),
            call(aten.kthvalue.default, x, 2, -1),
            call(aten.kthvalue.default, noise(33, dtype=torch.int64), 17),
            call(aten.kthvalue.default, noise(33, dtype=torch.float64), 9),
            call(aten.kthvalue.default, noise(33, dtype=torch.bfloat16), 9),
            call(aten.kthvalue.default, torch.tensor([2.0, nan, 1.0, -inf]), 4),
            call(aten.kthvalue.default, torch.tensor([2.0, nan, 1.0, -inf]), 3),
            call(aten.kthvalue.default, torch.tensor(3.0), 1),
        ]
    )


@pytest.mark.parametrize("op", [aten.median, aten.nanmedian])
def test_median(op):
    x = noise(6, 20)
    with_nan = noise(6, 21)
    with_nan[1, 3] = with_nan[2, [0, 7]] = nan
    with_nan[4] = nan
    check_ops(
        [
            call(op.default, x),
            call(op.default, with_nan),
            call(op.default, torch.full((3,), nan)),
            call(op.default, noise(7, dtype=torch.int64)),
            call(op.default, torch.empty(0)),
            call(op.default, torch.tensor(2.0)),
            call(op.dim, x, 0),
            call(op.dim, x, 1, True),
            call(op.dim, with_nan[:4], 1),
            call(op.dim, noise(4, 9, dtype=torch.int32), 1),
            call(op.dim, noise(9, dtype=torch.bfloat16), 0),
        ]
    )
    all_nan = torch.full((2, 3), nan)
    expected = torch.full((2,), nan), torch.zeros(2, dtype=torch.int64)
    run_op(op.dim, all_nan, 1, expected=expected)


def test_mode():
    torch.manual_seed(0)
    check_ops(
        [
            call(aten.mode.default, torch.randint(0, 4, (6, 15)), 1),
            call(aten.mode.default, torch.randint(0, 4, (6, 15)).float(), 0, True),
            call(aten.mode.default, torch.randint(0, 2, (3, 15)).bool(), 1),
            call(aten.mode.default, noise(9)),
            call(aten.mode.default, torch.tensor(2.0)),
        ]
    )
