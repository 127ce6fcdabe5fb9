"""Fractional max pooling: the windows that the samples choose, ties, NaN, gradients."""

import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten


def test_fractional_pooling() -> None:
    torch.manual_seed(0)
    nan = torch.rand(1, 2, 6, 7)
    nan[..., 2:4, 1:5] = float("nan")
    plane, volume = torch.rand(2, 3, 9, 11), torch.rand(2, 3, 5, 6, 7)
    ties = torch.zeros(1, 1, 6, 6)
    two, three = [2, 3], [2, 3, 2]
    calls = [
        call(aten.fractional_max_pool2d.default, plane, two, [4, 5], torch.rand(2, 3, 2)),
        call(aten.fractional_max_pool2d.default, plane[0], two, [1, 5], torch.rand(1, 3, 2)),
        call(aten.fractional_max_pool2d.default, nan, two, [4, 3], torch.rand(1, 2, 2)),
        call(aten.fractional_max_pool2d.default, ties, two, [3, 3], torch.rand(1, 1, 2)),
        call(
            aten.fractional_max_pool2d.default,
            plane.double(),
            two,
            [4, 5],
            torch.rand(2, 3, 2).double(),
        ),
        call(aten.fractional_max_pool3d.default, volume, three, [3, 2, 4], torch.rand(2, 3, 3)),
        call(aten.fractional_max_pool3d.default, volume[0], three, [3, 3, 5], torch.rand(1, 3, 3)),
    ]
    flat = aten.fractional_max_pool2d(plane, two, [4, 5], torch.rand(2, 3, 2))[1]
    deep = aten.fractional_max_pool3d(volume, three, [3, 2, 4], torch.rand(2, 3, 3))[1]
    flat_op, deep_op = aten.fractional_max_pool2d_backward, aten.fractional_max_pool3d_backward
    calls += [
        call(flat_op.default, torch.rand(2, 3, 4, 5), plane, two, [4, 5], flat),
        call(flat_op.default, torch.rand(3, 4, 5), plane[0], two, [4, 5], flat[0]),
        call(deep_op.default, torch.rand(2, 3, 3, 2, 4), volume, three, [3, 2, 4], deep),
    ]
    check_ops(calls)
