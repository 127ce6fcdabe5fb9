"""Histograms over one or several dimensions; bins are half open except for the last."""

import math
from collections.abc import Sequence

import torch

from torchneuron.lowering.registry import decomposition


@decomposition("aten.histogram.bins_tensor")
def histogram_bins(
    x: torch.Tensor,
    bins: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _counts(x.reshape(-1, 1), [bins], weight, density), bins.clone()


@decomposition("aten.histogram.bin_ct")
def histogram_count(
    x: torch.Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    points = x.reshape(-1, 1)
    edges = _edges(points, [bins], range)
    return _counts(points, edges, weight, density), edges[0]


@decomposition("aten._histogramdd_bin_edges")
def histogramdd_bin_edges(
    x: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> list[torch.Tensor]:
    return _edges(x.reshape(-1, x.shape[-1]), bins, range)


@decomposition("aten._histogramdd_from_bin_cts")
def histogramdd_from_bin_counts(
    x: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> torch.Tensor:
    points = x.reshape(-1, x.shape[-1])
    return _counts(points, _edges(points, bins, range), weight, density)


@decomposition("aten._histogramdd_from_bin_tensors")
def histogramdd_from_bin_tensors(
    x: torch.Tensor,
    bins: Sequence[torch.Tensor],
    *,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> torch.Tensor:
    return _counts(x.reshape(-1, x.shape[-1]), bins, weight, density)


def _edges(
    points: torch.Tensor, bins: Sequence[int], bounds: Sequence[float] | None
) -> list[torch.Tensor]:
    """The edges of equal bins along each dimension of the points (n, d), between ``bounds`` (low and
    high of each dimension), or from the least to the largest value.
    """
    if bounds is not None:
        return [
            _equal_bins(points, count, float(low), float(high))
            for count, low, high in zip(bins, bounds[::2], bounds[1::2], strict=True)
        ]
    if points.numel() == 0:
        return [_line(points, 0.0, 1.0, count) for count in bins]
    least, most = torch.aminmax(points, dim=0)
    margin = torch.where(least == most, 0.5, 0.0).to(points.dtype)
    return [
        _line(points, low, high, count)
        for count, low, high in zip(bins, least - margin, most + margin, strict=True)
    ]


def _equal_bins(points: torch.Tensor, count: int, low: float, high: float) -> torch.Tensor:
    if not low <= high:
        raise ValueError(f"histogram: min should not exceed max, but got {low} and {high}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return _line(points, low, high, count)


def _line(
    points: torch.Tensor, low: float | torch.Tensor, high: float | torch.Tensor, bins: int
) -> torch.Tensor:
    return torch.linspace(low, high, bins + 1, dtype=points.dtype, device=points.device)


def _counts(
    points: torch.Tensor,
    edges: Sequence[torch.Tensor],
    weight: torch.Tensor | None,
    density: bool,
) -> torch.Tensor:
    """Weight of the points (n, d) in each bin, as a tensor of d dimensions."""
    sizes = [edge.shape[0] - 1 for edge in edges]
    place = torch.zeros(points.shape[:1], dtype=torch.int64, device=points.device)
    inside = torch.ones(points.shape[:1], dtype=torch.bool, device=points.device)
    for edge, size, x in zip(edges, sizes, points.unbind(1), strict=True):
        index = torch.searchsorted(edge, x.contiguous(), right=True) - 1
        place = place * size + torch.where(x == edge[-1], size - 1, index)
        inside = inside & (x >= edge[0]) & (x <= edge[-1])
    one = torch.ones_like(points[:, 0])
    amount = one if weight is None else weight.reshape(-1).to(points.dtype)
    amount = torch.where(inside, amount, torch.zeros_like(amount))
    place = torch.where(inside, place, torch.zeros_like(place))
    counts = points.new_zeros(math.prod(sizes)).scatter_add(0, place, amount).view(sizes)
    if density:
        counts = counts / counts.sum()
        for dim, edge in enumerate(edges):
            shape = [1] * len(edges)
            shape[dim] = sizes[dim]
            counts = counts / edge.diff().view(shape)
    return counts
