"""Reading by index against the CPU."""

import pytest
import torch

from tests.lowering.harness import call, check_ops, run_op
from torchneuron.lowering import LoweringError
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitters.indexing import coordinates

aten = torch.ops.aten
index = aten.index.Tensor

X = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)


def ints(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


def test_one_index():
    check_ops(
        [
            call(index, X, [ints(1, 0, 1)]),
            call(index, X, [None, ints(-1, 2)]),
            call(index, X, [None, None, ints(3, -4, 0, 1, 2)]),
            call(index, X, [None, None, None, torch.tensor([[0, 4], [-1, -5]])]),
            call(index, X, [torch.tensor(1)]),
            call(index, X, [ints(0, 1, dtype=torch.int32)]),
            call(index, X, [ints(0, -1, dtype=torch.int32), None]),
            call(index, X, [torch.empty(0, dtype=torch.int64)]),
            call(index, torch.empty(0, 3), [None, ints(1, 2)]),
            call(aten._unsafe_index.Tensor, X, [None, ints(0, 1)]),
        ]
    )


def test_several_indices():
    rows, columns = torch.tensor([[0], [1]]), ints(2, 0, -1)
    check_ops(
        [
            call(index, X, [rows, columns]),
            call(index, X, [None, rows, columns]),
            call(index, X, [None, None, rows, columns]),
            call(index, X, [rows, None, columns]),
            call(index, X, [None, rows, None, columns]),
            call(index, X, [ints(0, 1, 1), ints(1, 1, -1), ints(3, 2, 1), ints(0, 0, 4)]),
            call(index, X, [ints(0, -1), ints(0, 2), None, ints(-5, 4)]),
            call(index, X.permute(3, 1, 0, 2), [rows, None, rows, None]),
        ]
    )


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.uint8])
def test_masks_are_refused(mask_dtype):
    mask = Val("%mask", mask_dtype, (2,))
    with pytest.raises(LoweringError, match="depends on data"):
        coordinates(Builder(), "aten.index.Tensor", (2, 3), [mask])


def test_dtypes():
    dtypes = [torch.bool, torch.uint8, torch.float64, torch.bfloat16, torch.complex64, torch.int16]
    check_ops([call(index, X.to(dtype), [ints(1), ints(-1, 0)]) for dtype in dtypes])


def test_outside_indices_read_the_nearest_element():
    expected = X[[1, 1]]
    run_op(aten._unsafe_index.Tensor, X, [ints(7, 100)], expected=expected)
    run_op(aten.gather.default, X[0, 0], 0, torch.full((1, 5), 9), expected=X[0, 0, 3:])


def test_gather():
    torch.manual_seed(0)
    gather = aten.gather.default
    check_ops(
        [
            *(call(gather, X, d, torch.randint(0, X.shape[d], (2, 3, 4, 5))) for d in range(4)),
            call(gather, X, 1, torch.randint(0, 3, (1, 7, 2, 5))),
            call(gather, X, -1, torch.randint(0, 5, (2, 3, 4, 1)), sparse_grad=True),
            call(gather, X.transpose(1, 3), 1, torch.randint(0, 5, (2, 2, 4, 3))),
            call(gather, X, 1, torch.empty(0, 3, 4, 5, dtype=torch.int64)),
            call(gather, torch.tensor(3.0), 0, torch.tensor(0)),
            call(gather, torch.tensor(3.0), 0, ints(0, 0)),
            call(gather, ints(5, 6), 0, torch.tensor(1)),
        ]
    )


def test_take_and_index_select():
    check_ops(
        [
            call(aten.take.default, X, torch.tensor([[0, 119], [-1, -120]])),
            call(aten.take.default, X.transpose(0, 2), ints(3, 5)),
            call(aten.take.default, X, torch.empty(0, 2, dtype=torch.int64)),
            call(aten.index_select.default, X, 2, ints(3, 3, 0)),
            call(aten.index_select.default, X, -1, ints(1, dtype=torch.int32)),
            call(aten.index_select.default, X, 0, torch.tensor(1)),
            call(aten.index_select.default, torch.tensor(2.0), 0, ints(0)),
            call(aten.index_select.default, X, 1, torch.empty(0, dtype=torch.int64)),
            call(aten.take_along_dim.default, X, ints(2).reshape(1, 1, 1, 1), 1),
        ]
    )


def test_unsafe_masked_index():
    where, mask = ints(0, 9, 1), torch.tensor([[True], [False], [True]])
    run_op(aten._unsafe_masked_index.default, X[0], mask, [None, where], 7.5)
