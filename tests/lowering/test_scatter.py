"""Writing by index against the CPU; where an index occurs twice the last writer wins."""

import itertools

import pytest
import torch

from tests.lowering.harness import call, check_ops, run_op

aten = torch.ops.aten
index_put = aten.index_put.default

X = torch.arange(3 * 4 * 5, dtype=torch.float32).reshape(3, 4, 5)


def ints(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


def noise(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64).mul(4).to(dtype)


def places(limit, *shape):
    torch.manual_seed(sum(shape))
    return torch.randint(0, limit, shape)


def test_scatter():
    src = noise(4, 4, 6)
    check_ops(
        [
            *(call(aten.scatter.src, X, d, places(X.shape[d], 3, 4, 5), src) for d in range(3)),
            call(aten.scatter.src, X, -1, places(5, 2, 4, 6), src),
            call(aten.scatter.value, X, 1, places(4, 3, 2, 5), 2.5),
            call(aten.scatter.value, X.to(torch.int32), 1, places(4, 3, 2, 5), 7),
            call(aten.scatter.value, X > 3, 1, places(4, 3, 2, 5), True),
            call(aten.scatter.reduce, X, 0, places(3, 3, 4, 5), src, reduce="add"),
            call(aten.scatter.reduce, X, 0, places(3, 3, 4, 5), src, reduce="multiply"),
            call(aten.scatter.value_reduce, X, 1, places(4, 3, 4, 5), 1.5, reduce="multiply"),
            call(aten.scatter_add.default, X, 2, places(5, 3, 4, 6), src),
            call(aten.scatter_add.default, X[:, 0], 1, torch.empty(0, 5, dtype=torch.int64), X[0]),
            call(aten.scatter_add.default, torch.tensor(1.0), 0, ints(0, 0), noise(2)),
            call(aten.scatter.src, X[0].t(), 0, places(5, 5, 4), noise(5, 4)),
        ]
    )


@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(include_self):
    dtypes = [torch.float32, torch.int64, torch.bfloat16, torch.float64]
    reductions = ["sum", "prod", "mean", "amax", "amin"]
    calls = []
    for dtype, reduce in itertools.product(dtypes, reductions):
        if dtype is torch.bfloat16 and reduce in ("sum", "mean", "prod"):
            continue  # PyTorch rounds after each step, we once at the end
        arguments = (noise(6, 4, dtype=dtype), 0, places(5, 9, 4), noise(9, 4, dtype=dtype), reduce)
        calls.append(call(aten.scatter_reduce.two, *arguments, include_self=include_self))
    source = noise(9)
    source[3] = float("nan")
    for reduce in ("amax", "amin"):
        arguments = (noise(6), 0, places(5, 9), source, reduce)
        calls.append(call(aten.scatter_reduce.two, *arguments, include_self=include_self))
    check_ops(calls)


def test_narrow_sums_round_once():
    x, index, source = torch.zeros(2), ints(0, 0, 0, 1), torch.tensor([256.0, 1.0, 1.0, 3.0])
    exact = x.index_add(0, index, source).bfloat16()
    narrow = (x.bfloat16(), 0, index, source.bfloat16())
    run_op(aten.index_add.default, *narrow, expected=exact)
    run_op(aten.scatter_add.default, *narrow, expected=exact)
    values = (x.bfloat16(), [index], source.bfloat16(), True)
    run_op(index_put, *values, expected=exact)


def test_slices():
    calls = []
    for dim in (0, 1, -1):
        index = places(X.shape[dim], 6)
        shape = list(X.shape)
        shape[dim] = 6
        source = noise(*shape)
        calls += [
            call(aten.index_add.default, X, dim, index, source),
            call(aten.index_add.default, X, dim, index, source, alpha=0.5),
            call(aten.index_copy.default, X, dim, index, source),
            call(aten.index_fill.int_Scalar, X, dim, index - 2, 1.5),
            call(aten.index_fill.int_Tensor, X, dim, index, torch.tensor(2.0)),
        ]
        for reduce, include_self in itertools.product(
            ("prod", "mean", "amax", "amin"), (True, False)
        ):
            arguments = (X, dim, index, source, reduce)
            calls.append(call(aten.index_reduce.default, *arguments, include_self=include_self))
    check_ops(calls)


def test_slices_of_other_dtypes():
    check_ops(
        [
            call(aten.index_add.default, X.to(torch.uint8), 0, ints(1, 1), X[:2].to(torch.uint8)),
            call(
                aten.index_add.default,
                X.to(torch.complex64),
                1,
                ints(1),
                X[:, :1].to(torch.complex64),
            ),
            call(aten.index_add.default, torch.tensor(1.0), 0, ints(0), torch.tensor(2.0)),
            call(aten.index_add.default, X, 1, ints(2, dtype=torch.int32), X[:, :1]),
            call(aten.index_add.default, X > 9, 0, ints(0, 1), X[1:] > 1),
            call(aten.index_copy.default, X > 9, 0, ints(2), X[:1] > 1),
            call(aten.index_copy.default, torch.tensor(1.0), 0, ints(0), torch.tensor(2.0)),
            call(aten.index_fill.int_Scalar, X.to(torch.int16), 1, torch.tensor(2), 3),
            call(aten.index_fill.int_Scalar, torch.tensor(1.0), 0, ints(0), 3),
            call(aten.index_reduce.default, X.long(), 0, ints(1, 1), -X[:2].long(), "mean"),
        ]
    )


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate):
    rows, columns = torch.tensor([[0], [2]]), ints(3, -1, 0)
    check_ops(
        [
            call(index_put, X, [ints(0, 2)], noise(2, 4, 5), accumulate),
            call(index_put, X, [ints(0, 0)], noise(4, 5), accumulate),
            call(index_put, X, [None, ints(1, 1, -4)], noise(3, 3, 5), accumulate),
            call(index_put, X, [rows, columns], noise(2, 3, 5), accumulate),
            call(index_put, X, [rows, columns], torch.tensor(3.0), accumulate),
            call(index_put, X, [rows, columns], noise(3, 1), accumulate),
            call(index_put, X, [rows, None, columns], noise(2, 3, 4), accumulate),
            call(index_put, X, [None, rows, columns], noise(3, 2, 3), accumulate),
            call(index_put, X, [ints(0, 0), ints(1, 1), ints(2, 2)], noise(2), accumulate),
            call(index_put, X, [torch.empty(0, dtype=torch.int64)], noise(4, 5), accumulate),
            call(
                index_put, X.transpose(0, 2), [ints(4, dtype=torch.int32)], noise(4, 3), accumulate
            ),
            call(index_put, X > 7, [ints(1, 0)], X[:1] > 1, accumulate),
            call(
                index_put,
                X.to(torch.complex64),
                [ints(1, 0)],
                X[:2].to(torch.complex64),
                accumulate,
            ),
            call(aten._index_put_impl.default, X, [ints(0, 2)], noise(2, 4, 5), accumulate),
            call(aten._unsafe_index_put.default, X, [ints(0, 2)], noise(2, 4, 5), accumulate),
            call(aten.put.default, X, ints(0, -1, 7, 7), noise(4), accumulate),
            call(aten.put.default, X, torch.tensor([[5], [1]]), noise(2, 1), accumulate),
        ]
    )


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_by_mask(accumulate):
    mask, row = X % 3 == 0, ints(1, 0, 1, dtype=torch.bool)
    check_ops(
        [
            call(index_put, X, [mask], torch.tensor(-1.0), accumulate),
            call(index_put, X, [mask], noise(int(mask.sum())), accumulate),
            call(index_put, X, [row], noise(4, 5), accumulate),
            call(index_put, X, [row], noise(2, 4, 5), accumulate),
            call(index_put, X, [row], noise(2, 1, 1), accumulate),
            call(index_put, X, [row], noise(1, 4, 5), accumulate),
            call(index_put, X, [None, mask[0]], noise(3, int(mask[0].sum())), accumulate),
            call(index_put, X, [None, mask[0]], noise(3, 1), accumulate),
            call(index_put, X, [mask[:, :, 0]], noise(int(mask[:, :, 0].sum()), 5), accumulate),
            call(index_put, X, [row.to(torch.uint8)], noise(2, 4, 5), accumulate),
            call(index_put, X, [torch.zeros(3, dtype=torch.bool)], noise(0, 4, 5), accumulate),
        ]
    )


def test_masked_scatter():
    mask = X % 3 == 0
    check_ops(
        [
            call(aten.masked_scatter.default, X, mask, noise(60)),
            call(aten.masked_scatter.default, X, mask[:, :1], noise(60)),
            call(aten.masked_scatter.default, X, torch.zeros_like(mask), noise(0)),
        ]
    )


def test_unsafe_masked_index_put_accumulate():
    mask, where = torch.tensor([[True], [False], [True]]), ints(0, 9, 1)
    op = aten._unsafe_masked_index_put_accumulate.default
    run_op(op, X[0], mask, [where], noise(3, 5))


def test_outside_updates_are_dropped():
    run_op(aten._unsafe_index_put.default, X[0], [ints(1)], noise(5), False)
    expected = X[0].clone()
    expected[0] = 9
    arguments = (X[0], 0, torch.tensor([[0] * 5, [77] * 5]), 9.0)
    run_op(aten.scatter.value, *arguments, expected=expected)
