"""Embedding, bags of embeddings and their gradients."""

from typing import Any

import pytest
import torch

from tests.lowering.harness import call, check_ops, run_op

aten = torch.ops.aten


def _op(name: str) -> Any:
    return getattr(aten, name).default


def test_embedding() -> None:
    torch.manual_seed(0)
    table, indices = torch.randn(10, 6), torch.randint(10, (3, 4))
    grad = torch.randn(3, 4, 6)
    check_ops(
        [
            call(_op("embedding"), table, indices),
            call(_op("embedding"), table.bfloat16(), indices.int(), 2),
            call(_op("embedding"), table, torch.tensor(3)),
            call(_op("embedding"), table, torch.zeros(0, 2, dtype=torch.int64)),
            call(_op("embedding_dense_backward"), grad, indices, 10, -1, False),
            call(_op("embedding_dense_backward"), grad, indices, 10, 3, True),
            call(_op("embedding_dense_backward"), grad[:0], indices[:0], 10, 3, False),
        ]
    )


def test_renorm() -> None:
    torch.manual_seed(0)
    table, indices = torch.randn(10, 6), torch.tensor([1, 3, 3, 9])
    for norm in (1.0, 2.0, 3.0, float("inf")):
        expected = aten.embedding_renorm_(table.clone(), indices, 1.2, norm)
        run_op(_op("embedding_renorm"), table, indices, 1.2, norm, expected=expected)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags(mode: int) -> None:
    torch.manual_seed(0)
    table, indices = torch.randn(10, 4), torch.randint(10, (12,))
    indices[8:10] = 7
    starts = torch.tensor([0, 3, 3, 8, 10])
    weights = torch.rand(12) if mode == 0 else None
    for padding, last in ((-1, False), (7, False), (-1, True)):
        offsets = torch.cat([starts, torch.tensor([12])]) if last else starts
        options = (False, mode, False, weights, last, padding)
        reference = aten._embedding_bag(table, indices, offsets, *options)
        # The CPU leaves out what it does not need.
        bags = torch.tensor([0, 0, 0, 2, 2, 2, 2, 2, 3, 3, 4, 4])
        sizes = torch.bincount(bags[indices != padding], minlength=6 if last else 5)
        expected = [reference[0], bags, sizes, reference[3] if mode == 2 else None]
        run_op(_op("_embedding_bag"), table, indices, offsets, *options, expected=expected)
        grad = torch.randn(5, 4)
        saved = (bags, sizes[:5], reference[3], 10, False, mode)
        check_ops(
            [call(_op("_embedding_bag_dense_backward"), grad, indices, *saved, weights, padding)]
        )


def test_gradients_of_bags() -> None:
    torch.manual_seed(0)
    table, indices = torch.randn(10, 4), torch.randint(10, (12,))
    offsets, bags = torch.tensor([0, 3, 3, 8]), torch.tensor([0, 0, 0] + [2] * 5 + [3] * 4)
    grad, none = torch.randn(4, 4), torch.zeros(0, dtype=torch.int64)
    weights, sizes = torch.rand(12), torch.tensor([3, 0, 5, 4])
    check_ops(
        [
            call(
                _op("_embedding_bag_backward"),
                grad,
                indices,
                offsets,
                given,
                sizes,
                none,
                10,
                scale,
                mode,
                False,
                w,
            )
            for given, scale, mode, w in [
                (none, False, 0, None),
                (bags, False, 0, weights),
                (bags, False, 1, None),
            ]
        ]
        + [
            call(
                _op("_embedding_bag_per_sample_weights_backward"),
                grad,
                table,
                indices,
                offsets,
                bags,
                0,
                padding,
            )
            for padding in (-1, 3)
        ]
    )


def test_gradient_scaled_by_frequency() -> None:
    # Against the formula: the CPU's kernel divides by the frequency of another index.
    indices, bags, sizes = (
        torch.tensor([2, 2, 5, 2, 1]),
        torch.tensor([0, 0, 1, 1, 1]),
        torch.tensor([2, 3]),
    )
    grad, none = torch.randn(2, 4), torch.zeros(0, dtype=torch.int64)
    rows = grad[bags] / sizes[bags].unsqueeze(1) / torch.bincount(indices)[indices].unsqueeze(1)
    expected = torch.zeros(6, 4).index_add(0, indices, rows)
    saved = (bags, sizes, none, 6, True, 1)
    run_op(_op("_embedding_bag_dense_backward"), grad, indices, *saved, None, expected=expected)
