"""Pooling and its gradients."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops

aten = torch.ops.aten

# size, kernel, stride, padding, dilation, ceil_mode
MAX_2D = [
    ((6, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((7, 9), (3, 3), (2, 2), (1, 1), (1, 1), False),
    ((7, 8), (3, 3), (1, 2), (1, 0), (1, 2), False),
    ((8, 8), (3, 2), (3, 3), (1, 1), (1, 1), True),
    ((7, 7), (2, 3), (3, 2), (0, 1), (2, 1), True),
    ((6, 6), (6, 6), (6, 6), (0, 0), (1, 1), False),
    ((9, 9), (9, 9), (1, 1), (4, 4), (1, 1), False),
]
MAX_3D = [
    ((4, 6, 8), (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), False),
    ((5, 6, 7), (3, 2, 3), (2, 1, 2), (1, 1, 1), (1, 1, 1), True),
]
# size, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
AVERAGE_2D = [
    ((6, 8), (2, 2), (), (0, 0), False, True, None),
    ((7, 9), (3, 3), (2, 2), (1, 1), False, True, None),
    ((7, 9), (3, 3), (2, 2), (1, 1), True, False, None),
    ((7, 8), (3, 2), (1, 3), (1, 0), True, True, 5),
    ((8, 8), (2, 3), (3, 3), (1, 1), True, True, None),
    ((20, 30), (3, 20), (2, 1), (0, 3), False, True, None),
]
AVERAGE_3D = [
    ((4, 6, 8), (2, 2, 2), (), (0, 0, 0), False, True, None),
    ((5, 6, 7), (3, 2, 3), (2, 1, 2), (1, 1, 1), True, False, None),
]
ADAPTIVE = [((6, 8), (3, 2)), ((7, 9), (3, 4)), ((5, 4), (7, 1)), ((30, 5), (2, 5))]
ADAPTIVE_3D = [((4, 6, 8), (2, 3, 4)), ((5, 6, 7), (2, 4, 3))]


def _op(name: str) -> Any:
    return getattr(aten, name).default


def _distinct(*shape: int) -> torch.Tensor:
    """No two neighbours are equal, so that no CPU variant may choose another maximum."""
    return torch.randperm(torch.Size(shape).numel()).reshape(shape).float()


def _max_calls(rank: int, case: Any, x: torch.Tensor) -> Iterator[Call]:
    name = f"max_pool{rank}d_with_indices"
    options = case[1:]
    yield call(_op(name), x, *options)
    values, indices = _op(name)(x, *options)
    grad = torch.randn(values.shape).to(x.dtype)
    yield call(_op(f"{name}_backward"), grad, x, *options, indices)


@pytest.mark.parametrize(("rank", "cases"), [(2, MAX_2D), (3, MAX_3D)])
def test_max(rank: int, cases: Any) -> None:
    torch.manual_seed(0)
    calls = [one for case in cases for one in _max_calls(rank, case, _distinct(2, 3, *case[0]))]
    calls += _max_calls(rank, cases[1], _distinct(3, *cases[1][0]))
    check_ops(calls)


def test_max_of_ties_infinities_and_nans() -> None:
    x = torch.randint(0, 3, (2, 3, 7, 9)).float()
    x[0, 0, 2:5, 2:5] = float("nan")
    x[0, 1] = float("-inf")
    calls = list(_max_calls(2, MAX_2D[1], x))
    calls += _max_calls(2, MAX_2D[3], x)
    calls.append(call(_op("max_pool2d_with_indices"), x.long(), [3], [2], [1]))
    calls.append(call(_op("adaptive_max_pool2d"), x, [3, 4]))
    check_ops(calls)


@pytest.mark.parametrize(("rank", "cases"), [(2, AVERAGE_2D), (3, AVERAGE_3D)])
def test_average(rank: int, cases: Any) -> None:
    torch.manual_seed(0)
    calls = []
    for case in cases:
        x = torch.randn(2, 3, *case[0])
        calls.append(call(_op(f"avg_pool{rank}d"), x, *case[1:]))
        grad = torch.randn_like(_op(f"avg_pool{rank}d")(x, *case[1:]))
        calls.append(call(_op(f"avg_pool{rank}d_backward"), grad, x, *case[1:]))
    x = torch.randint(-50, 50, (3, *cases[1][0]))
    calls.append(call(_op(f"avg_pool{rank}d"), x, *cases[1][1:]))
    check_ops(calls)


@pytest.mark.parametrize(("rank", "cases"), [(2, ADAPTIVE), (3, ADAPTIVE_3D)])
def test_adaptive(rank: int, cases: Any) -> None:
    torch.manual_seed(0)
    calls = []
    for size, counts in cases:
        x = _distinct(2, 3, *size)
        mean, maximum = f"_adaptive_avg_pool{rank}d", f"adaptive_max_pool{rank}d"
        calls += [call(_op(mean), x, counts), call(_op(maximum), x, counts)]
        values, indices = _op(maximum)(x, counts)
        grad = torch.randn_like(values)
        calls.append(call(_op(f"{mean}_backward"), grad, x))
        calls.append(call(_op(f"{maximum}_backward"), grad, x, indices))
    check_ops(calls)


def test_unpooling() -> None:
    x = _distinct(2, 3, 6, 8)
    values, indices = aten.max_pool2d_with_indices(x, [2, 2])
    deep = _distinct(3, 4, 6, 8)
    deep_values, deep_indices = aten.max_pool3d_with_indices(deep, [2, 2, 2])
    check_ops(
        [
            call(_op("max_unpool2d"), values, indices, [6, 8]),
            call(_op("max_unpool3d"), deep_values, deep_indices, [4, 6, 8], [2] * 3, [0] * 3),
        ]
    )


def test_narrow_and_empty() -> None:
    x = torch.randint(-8, 8, (2, 3, 6, 8)).bfloat16()
    empty = torch.randn(0, 3, 6, 8)
    grad, indices = torch.randn(0, 3, 3, 4), torch.zeros(0, 3, 3, 4, dtype=torch.int64)
    options = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    check_ops(
        [
            call(_op("avg_pool2d"), x, [2, 2]),
            call(_op("_adaptive_avg_pool2d"), x, [4, 3]),
            *_max_calls(2, MAX_2D[1], x),
            call(_op("max_pool2d_with_indices"), empty, [2, 2]),
            call(_op("max_pool2d_with_indices_backward"), grad, empty, *options, indices),
            call(_op("avg_pool2d"), empty, [2, 2]),
            call(_op("_adaptive_avg_pool2d"), empty, [2, 3]),
        ]
    )
