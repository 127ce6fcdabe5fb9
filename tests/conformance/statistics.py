"""Whether what random operators draw on the device has the distribution that it should have.

Draws of one seed are compared with the distribution function by Kolmogorov and Smirnov's statistic,
and each draw with the next one by their correlation. The seed is fixed: a check passes always or never.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_COUNT = 16384
_SEED = 2024
# Draws of the distribution pass these with a probability of 0.9993 and 0.9999.
_LARGEST_DISTANCE = 2.0
_LARGEST_CORRELATION = 4.0
# Narrower floats are too coarse for the distance.
DTYPES = (torch.float32, torch.float64, torch.int64)


@dataclass(frozen=True)
class Distribution:
    """How to draw, given ``device`` and ``dtype`` by keyword, and P(X <= x) of what is drawn."""

    draw: Callable[..., Tensor]
    cdf: Callable[[Tensor], Tensor]


def _filled(name: str, *parameters: float) -> Callable[..., Tensor]:
    return lambda **to: getattr(torch.empty(_COUNT, **to), name)(*parameters)


def _ones(function: Callable[..., Tensor], *shape: int, **options: Any) -> Callable[..., Tensor]:
    return lambda **to: function(torch.ones(shape or _COUNT, **to), **options)


def _uniform(low: float, high: float) -> Callable[[Tensor], Tensor]:
    return lambda x: ((x - low) / (high - low)).clamp(0, 1)


def _normal(mean: float, deviation: float) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.special.ndtr((x - mean) / deviation)


def _integers(low: int, high: int) -> Callable[[Tensor], Tensor]:
    return lambda x: ((x.floor() - low + 1) / (high - low)).clamp(0, 1)


def _atoms(weights: Mapping[float, float]) -> Callable[[Tensor], Tensor]:
    """P(X <= x) of a few values, each with its probability; up to rounding of the values."""
    return lambda x: sum(
        (weight * (x >= value - 1e-5).double() for value, weight in weights.items()),
        torch.zeros_like(x),
    )


def _multinomial(**to: Any) -> Tensor:
    return torch.multinomial(torch.tensor([1.0, 2.0, 3.0, 4.0], **to), _COUNT, replacement=True)


def _rrelu(**to: Any) -> Tensor:
    return functional.rrelu(-torch.ones(_COUNT, **to), 0.125, 0.5, training=True)


def _alpha_dropped(p: float) -> dict[float, float]:
    """The values of ones after dropout that keeps mean and variance of what SELU gives."""
    low = -1.7580993408473766
    scale = 1 / math.sqrt((1 - p) * (1 + p * low * low))
    shift = -scale * p * low
    return {scale * low + shift: p, scale + shift: 1 - p}


_P = 0.3
_KEPT = _atoms({0.0: _P, 1 / (1 - _P): 1 - _P})
_STANDARD = _normal(0, 1)

DISTRIBUTIONS: dict[str, Distribution] = {
    "bernoulli": Distribution(
        lambda **to: torch.bernoulli(torch.full((_COUNT,), _P, **to)),
        _atoms({0.0: 1 - _P, 1.0: _P}),
    ),
    "binomial": Distribution(
        lambda **to: torch.binomial(
            torch.full((_COUNT,), 10.0, **to), torch.full((_COUNT,), _P, **to)
        ),
        _atoms({float(k): math.comb(10, k) * _P**k * (1 - _P) ** (10 - k) for k in range(11)}),
    ),
    "cauchy": Distribution(
        _filled("cauchy_", 1.0, 2.0), lambda x: torch.atan((x - 1) / 2) / math.pi + 0.5
    ),
    "exponential": Distribution(_filled("exponential_", 1.5), lambda x: -torch.expm1(-1.5 * x)),
    "geometric": Distribution(_filled("geometric_", _P), lambda x: 1 - (1 - _P) ** x.floor()),
    "log_normal": Distribution(
        _filled("log_normal_", 0.5, 0.75), lambda x: torch.special.ndtr((x.log() - 0.5) / 0.75)
    ),
    "multinomial": Distribution(_multinomial, _atoms({0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4})),
    "nn.functional.alpha_dropout": Distribution(
        _ones(functional.alpha_dropout, p=_P, training=True), _atoms(_alpha_dropped(_P))
    ),
    "nn.functional.dropout": Distribution(_ones(functional.dropout, p=_P), _KEPT),
    "nn.functional.dropout2d": Distribution(
        _ones(functional.dropout2d, 64, 256, 1, 1, p=_P), _KEPT
    ),
    "nn.functional.dropout3d": Distribution(
        _ones(functional.dropout3d, 64, 256, 1, 1, 1, p=_P), _KEPT
    ),
    "nn.functional.feature_alpha_dropout.with_train": Distribution(
        _ones(functional.feature_alpha_dropout, 64, 256, 1, p=_P, training=True),
        _atoms(_alpha_dropped(_P)),
    ),
    "nn.functional.rrelu": Distribution(_rrelu, _uniform(-0.5, -0.125)),
    "normal": Distribution(
        lambda **to: torch.normal(
            torch.full((_COUNT,), 2.0, **to), torch.full((_COUNT,), 3.0, **to)
        ),
        _normal(2, 3),
    ),
    "normal.in_place": Distribution(_filled("normal_", 2.0, 3.0), _normal(2, 3)),
    "normal.number_mean": Distribution(
        lambda **to: torch.normal(2.0, torch.full((_COUNT,), 3.0, **to)), _normal(2, 3)
    ),
    "poisson": Distribution(
        lambda **to: torch.poisson(torch.full((_COUNT,), 4.0, **to)),
        lambda x: torch.special.gammaincc(x.floor() + 1, torch.full_like(x, 4.0)),
    ),
    "rand_like": Distribution(_ones(torch.rand_like), _uniform(0, 1)),
    "randint": Distribution(lambda **to: torch.randint(-3, 17, (_COUNT,), **to), _integers(-3, 17)),
    "randint_like": Distribution(_ones(torch.randint_like, low=-3, high=17), _integers(-3, 17)),
    "randn": Distribution(lambda **to: torch.randn(_COUNT, **to), _STANDARD),
    "randn_like": Distribution(_ones(torch.randn_like), _STANDARD),
    # Each number once: it is the order that chance decides.
    "randperm": Distribution(
        lambda **to: torch.randperm(_COUNT, device=to["device"]), _integers(0, _COUNT)
    ),
    "uniform": Distribution(_filled("uniform_", -1.0, 3.0), _uniform(-1, 3)),
}


def problem(name: str, dtype: torch.dtype, device: str = "neuron") -> str:
    """Empty if the draws of ``name`` are of its distribution, or none is listed; else what is wrong."""
    distribution = DISTRIBUTIONS.get(name)
    if distribution is None or dtype not in DTYPES:
        return ""
    torch.manual_seed(_SEED)
    drawn = distribution.draw(device=device, dtype=dtype).detach().cpu().double().flatten()
    return misfit(drawn, distribution.cdf)


def misfit(drawn: Tensor, cdf: Callable[[Tensor], Tensor]) -> str:
    """Empty if ``drawn`` (1-D, float64) look like independent draws of ``cdf``, else why not."""
    root = math.sqrt(drawn.numel())
    values, counts = drawn.unique(return_counts=True)
    distance = root * float((counts.cumsum(0) / drawn.numel() - cdf(values)).abs().max())
    if not distance < _LARGEST_DISTANCE:
        return f"another distribution: Kolmogorov-Smirnov {distance:.2f}"
    ranks = cdf(drawn)
    pairs = torch.stack((ranks[:-1], ranks[1:]))
    correlation = root * abs(float(torch.corrcoef(pairs)[0, 1]))
    if not correlation < _LARGEST_CORRELATION:
        return f"each draw depends on the one before: correlation {correlation:.2f}"
    return ""
