"""Reflection and replication padding, their gradients, and blocks as columns."""

from typing import Any

import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten

CASES = [
    ("reflection_pad1d", (2, 3, 5), [2, 4]),
    ("reflection_pad2d", (2, 3, 5, 6), [2, 1, 0, 3]),
    ("reflection_pad3d", (2, 2, 3, 4, 5), [1, 2, 3, 0, 1, 1]),
    ("replication_pad1d", (3, 5), [2, 7]),
    ("replication_pad2d", (2, 3, 5, 6), [2, 1, 0, 3]),
    ("replication_pad3d", (2, 2, 3, 4, 5), [1, 2, 3, 0, 9, 1]),
    ("replication_pad2d", (2, 3, 5, 6), [-1, 2, 1, -2]),
]


def _op(name: str) -> Any:
    return getattr(aten, name).default


def test_padding() -> None:
    torch.manual_seed(0)
    calls = []
    for name, shape, padding in CASES:
        x = torch.randn(shape)
        grad = torch.randn_like(_op(name)(x, padding))
        calls.append(call(_op(name), x, padding))
        calls.append(call(_op(f"{name}_backward"), grad, x, padding))
    x = torch.randn(2, 3, 5, 6)
    calls.append(call(_op("reflection_pad2d"), x.bfloat16(), [1, 2, 1, 1]))
    calls.append(call(_op("replication_pad2d"), torch.complex(x, x), [1, 2, 1, 1]))
    check_ops(calls)


def test_blocks() -> None:
    torch.manual_seed(0)
    calls = []
    for kernel, dilation, padding, stride in [
        ([2, 2], [1, 1], [0, 0], [2, 2]),
        ([3, 2], [1, 2], [1, 0], [2, 1]),
        ([2, 3], [2, 1], [3, 2], [1, 3]),
    ]:
        options = (kernel, dilation, padding, stride)
        x = torch.randn(2, 3, 7, 8)
        columns = aten.im2col(x, *options)
        calls += [
            call(_op("im2col"), x, *options),
            call(_op("im2col"), x[0].bfloat16(), *options),
            call(_op("col2im"), columns, [7, 8], *options),
            call(_op("col2im"), columns[0], [7, 8], *options),
        ]
    check_ops(calls)
