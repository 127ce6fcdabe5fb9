"""Histograms of several dimensions: given bins and counted ones, ranges, weights, densities, points on edges."""

import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten


def test_histogramdd() -> None:
    torch.manual_seed(0)
    points, weight = torch.randn(4, 6, 2), torch.rand(4, 6)
    whole = torch.randint(0, 4, (30, 3)).float()
    narrow = {"range": [-1.0, 1.0, -0.5, 2.0]}
    edges = [torch.tensor([-1.0, 0.0, 0.25, 1.0]), torch.tensor([-2.0, 0.5, 3.0])]
    check_ops(
        [
            call(aten._histogramdd_bin_edges.default, points, [3, 5]),
            call(aten._histogramdd_bin_edges.default, points, [3, 5], **narrow),
            call(aten._histogramdd_bin_edges.default, torch.ones(5, 2), [2, 3]),
            call(aten._histogramdd_bin_edges.default, torch.ones(0, 2), [2, 3]),
            call(aten._histogramdd_from_bin_cts.default, points, [3, 5]),
            call(aten._histogramdd_from_bin_cts.default, points, [3, 5], weight=weight, **narrow),
            call(aten._histogramdd_from_bin_cts.default, points.double(), [4, 2], density=True),
            call(aten._histogramdd_from_bin_cts.default, whole, [3, 2, 3]),
            call(aten._histogramdd_from_bin_tensors.default, points, edges, weight=weight),
            call(aten._histogramdd_from_bin_tensors.default, points, edges, density=True),
        ]
    )
