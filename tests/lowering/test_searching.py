"""Searching and counting against the CPU."""

import pytest
import torch

from tests.lowering.harness import call, check_ops, run_op

aten = torch.ops.aten
nan, inf = float("nan"), float("inf")


def noise(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64).mul(3).to(dtype)


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right):
    search = aten.searchsorted.Tensor
    sequence = noise(33).round().sort()[0]
    rows, values = noise(2, 3, 17).sort()[0], noise(2, 3, 5)
    unsorted = noise(9)
    special = torch.tensor([nan, inf, -inf, 0.0])
    check_ops(
        [
            call(search, sequence, noise(4, 20).round(), right=right),
            call(search, sequence, special, right=right),
            call(search, torch.tensor([-inf, 0.0, inf, nan]), special, right=right),
            call(search, rows, values, right=right),
            call(search, rows, values, out_int32=True, side="right" if right else "left"),
            call(search, unsorted, noise(5), right=right, sorter=unsorted.argsort()),
            call(search, torch.tensor([1, 3, 5]), torch.tensor([3, 4, 9]), right=right),
            call(search, torch.tensor([1, 3, 5]), torch.tensor([3.5, 5.0]), right=right),
            call(search, torch.empty(0), noise(3), right=right),
            call(search, sequence, torch.empty(0), right=right),
            call(search, torch.tensor([1, 3, 5]), torch.tensor(3), right=right),
            call(aten.searchsorted.Scalar, sequence, 0.0, right=right),
            call(aten.searchsorted.Scalar, torch.tensor([1, 2, 3]), 2.5, right=right),
            call(aten.bucketize.Tensor, noise(3, 4), sequence, right=right),
            call(aten.bucketize.Tensor, noise(3, 4), sequence, out_int32=True, right=right),
            call(aten.bucketize.Scalar, 1, torch.tensor([0.5, 1.0, 2.0]), right=right),
        ]
    )


@pytest.mark.parametrize("invert", [False, True])
def test_isin(invert):
    torch.manual_seed(0)
    x, few, many = torch.randint(0, 50, (4, 9)), torch.arange(0, 50, 7), torch.randint(0, 99, (60,))
    with_nan = torch.tensor([nan, 1.0, 2.0])
    check_ops(
        [
            call(aten.isin.Tensor_Tensor, x, few, invert=invert),
            call(aten.isin.Tensor_Tensor, x, many, invert=invert),
            call(aten.isin.Tensor_Tensor, x.float(), many, assume_unique=False, invert=invert),
            call(aten.isin.Tensor_Tensor, with_nan, with_nan, invert=invert),
            call(aten.isin.Tensor_Tensor, with_nan, torch.cat([with_nan] * 20), invert=invert),
            call(aten.isin.Tensor_Tensor, x, torch.empty(0, dtype=torch.int64), invert=invert),
            call(aten.isin.Tensor_Scalar, x, 7, invert=invert),
            call(aten.isin.Scalar_Tensor, 7, x, invert=invert),
        ]
    )


def test_histc():
    x = noise(3, 50)
    check_ops(
        [
            call(aten.histc.default, x),
            call(aten.histc.default, x, 10, -1, 2),
            call(aten.histc.default, x.double(), 7),
            call(aten.histc.default, torch.ones(5), 4),
            call(aten.histc.default, torch.arange(11.0), 10, 0, 10),
            call(aten.histc.default, torch.empty(0), 3, 0, 1),
        ]
    )


def test_histc_bounds_are_operands():
    run_op(aten.histc.default, noise(40), 5, -2.5, 2.5)
