"""Gamma, Poisson and binomial numbers: their distributions against SciPy's, and their borders."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tests.lowering.harness import run_op

aten = torch.ops.aten
COUNT = 4000


def _draw(op: Any, *args: torch.Tensor) -> np.ndarray:
    # The CPU raises on values out of range, and never ends on some.
    like = torch.empty_like(args[0])
    result = run_op(op, *args, compare=False, seed=7, expected=like)
    value = result[0] if isinstance(result, (list, tuple)) else result
    return value.double().numpy()


def _check_discrete(sample: np.ndarray, distribution: Any) -> None:
    """Chi-squared test over some twenty cells of about the same chance."""
    assert (sample == np.floor(sample)).all()
    edges = np.unique(distribution.ppf(np.linspace(0, 1, 20)[1:-1]))
    counts = np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1)
    chances = np.diff(np.concatenate([[0], distribution.cdf(edges), [1]]))
    possible = chances > 0
    assert not counts[~possible].any()
    assert stats.chisquare(counts[possible], chances[possible] * len(sample)).pvalue > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gamma(dtype: torch.dtype) -> None:
    shapes = [0.05, 0.7, 1.0, 3.5, 200.0]
    alpha = torch.tensor(shapes, dtype=dtype)[:, None].expand(-1, COUNT).contiguous()
    samples = _draw(aten._standard_gamma.default, alpha)
    for sample, shape in zip(samples, shapes, strict=True):
        assert (sample > 0).all()
        assert stats.kstest(sample, stats.gamma(shape).cdf).pvalue > 1e-4


def test_poisson() -> None:
    rates = [0.0, 0.3, 9.9, 10.0, 47.5, 1e6]
    rate = torch.tensor(rates, dtype=torch.float64)[:, None].expand(-1, COUNT).contiguous()
    samples = _draw(aten.poisson.default, rate)
    assert not samples[0].any()
    for sample, mean in zip(samples[1:], rates[1:], strict=True):
        _check_discrete(sample, stats.poisson(mean))


def test_binomial() -> None:
    cases = [(1.0, 0.3), (20.0, 0.2), (20.0, 0.9), (100.0, 0.5), (1e5, 0.001), (1e6, 0.7)]
    count, prob = (torch.tensor(x, dtype=torch.float64) for x in zip(*cases, strict=True))
    wide = [x[:, None].expand(-1, COUNT).contiguous() for x in (count, prob)]
    samples = _draw(aten.binomial.default, *wide)
    for sample, (n, p) in zip(samples, cases, strict=True):
        assert sample.min() >= 0
        assert sample.max() <= n
        _check_discrete(sample, stats.binom(n, p))


def test_borders() -> None:
    nan = math.nan
    count, prob = torch.tensor([0.0, 5, 5, nan, 5]), torch.tensor([0.5, 0, 1, 0.5, nan])
    drawn = _draw(aten.binomial.default, count, prob)
    assert np.array_equal(drawn, [0, 0, 5, nan, nan], equal_nan=True)
    assert np.isnan(_draw(aten.poisson.default, torch.tensor([-1.0, nan]))).all()
    assert _draw(aten._standard_gamma.default, torch.zeros(0, 3)).shape == (0, 3)
    half = _draw(aten._standard_gamma.default, torch.full((100,), 2.0, dtype=torch.bfloat16))
    assert 0 < half.mean() < 4
