"""Random ops: distribution, range, determinism. Bounds of the statistics are five standard errors or more."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import fx

from tests.lowering.harness import execute, run_op
from torchneuron.lowering import FreshOutput, ProgramSpec, lower

aten = torch.ops.aten
# `aten.random.from` is no Python: nor can FX generate code for it.
RANDOM_FROM = getattr(aten.random, "from")
N = 20_000
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def draw(op, *args, seed=1, **kwargs):
    return run_op(op, *args, compare=False, seed=seed, **kwargs)


def run_graph(graph, dtype, count, seed=1):
    """Runs a graph without inputs that gives `count` elements; a graph only, so that FX generates no code."""
    spec = ProgramSpec((), (), (FreshOutput(dtype, (count,), (1,)),))
    return execute(lower(SimpleNamespace(graph=graph), spec), spec, [], seed=seed)[0]


def random_from(low, high, dtype=torch.int64):
    graph = fx.Graph()
    blank = graph.call_function(aten.zeros.default, ([N],), {"dtype": dtype})
    graph.output((graph.call_function(RANDOM_FROM, (blank, low, high)),))
    return run_graph(graph, dtype, N)


def blank(*shape, dtype=torch.float32):
    return torch.zeros(shape or (N,), dtype=dtype)


def check_distribution(sample, cdf):
    """Kolmogorov-Smirnov: the largest gap between the empirical and the true distribution function."""
    ordered = sample.double().flatten().sort()[0]
    n = len(ordered)
    expected = cdf(ordered)
    above = torch.arange(1, n + 1) / n - expected
    below = expected - torch.arange(n) / n
    # Exceeded once in 10**6 samples.
    assert max(above.max(), below.max()) < 2.7 / math.sqrt(n)


def normal_cdf(x):
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform(dtype):
    x = draw(aten.uniform.default, blank(dtype=dtype), -1.0, 3.0)
    assert x.dtype is dtype
    assert x.min() >= -1
    assert x.max() < 3
    if dtype in (torch.float32, torch.float64):
        check_distribution(x, lambda v: (v + 1) / 4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rand_has_the_resolution_of_its_dtype(dtype):
    digits = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}[dtype]
    x = draw(aten.rand.default, [N], dtype=dtype).double() * 2.0**digits
    assert torch.equal(x, x.floor())
    assert (x % 2 == 1).any()
    assert x.min() >= 0
    assert x.max() < 2.0**digits


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_normal(dtype):
    x = draw(aten.normal_functional.default, blank(200_000, dtype=dtype), 2.0, 0.5).double()
    z = (x - 2) / 0.5
    check_distribution(z, normal_cdf)
    assert abs(z.mean()) < 5 / math.sqrt(200_000)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / 200_000)
    assert abs((z**4).mean() - 3) < 5 * math.sqrt(96 / 200_000)
    assert 3.9 < z.abs().max() < 6.7
    # Neighbours are independent.
    assert abs((z[:-1] * z[1:]).mean()) < 5 / math.sqrt(200_000)


def test_normal_of_other_dtypes():
    for dtype in (torch.bfloat16, torch.float16):
        x = draw(aten.randn.default, [N], dtype=dtype)
        assert x.dtype is dtype
        assert abs(x.double().std() - 1) < 0.05
    x = draw(aten.normal_functional.default, blank(dtype=torch.complex64))
    assert abs(x.real.var() - 0.5) < 0.03
    assert abs(x.imag.var() - 0.5) < 0.03
    assert abs((x.real * x.imag).mean()) < 0.03


def test_normal_of_tensors():
    mean, std = torch.arange(4.0).repeat(5000), torch.tensor([1.0, 2.0]).repeat(10_000)
    for args in ((mean, std), (mean, 1.0), (1.0, std)):
        op = {
            (True, True): aten.normal.Tensor_Tensor,
            (True, False): aten.normal.Tensor_float,
            (False, True): aten.normal.float_Tensor,
        }[tuple(isinstance(arg, torch.Tensor) for arg in args)]
        check_distribution((draw(op, *args) - args[0]) / args[1], normal_cdf)
    check_distribution(draw(aten.normal.float_float, 0.0, 1.0, [N]), normal_cdf)
    check_distribution(draw(aten.randn_like.default, blank(10, N // 10)), normal_cdf)


def test_other_continuous_distributions():
    x = draw(aten.exponential.default, blank(), 2.0)
    assert x.min() > 0
    check_distribution(x, lambda v: 1 - torch.exp(-2 * v))
    check_distribution(
        draw(aten.exponential.default, blank(dtype=torch.float64)), lambda v: -torch.expm1(-v)
    )
    assert draw(aten.exponential.default, blank(dtype=torch.float16), 1e4).min() > 0
    x = draw(aten.cauchy.default, blank(), 1.0, 2.0)
    check_distribution(x, lambda v: 0.5 + torch.atan((v - 1) / 2) / math.pi)
    x = draw(aten.log_normal.default, blank(), 0.5, 0.25)
    check_distribution((x.log() - 0.5) / 0.25, normal_cdf)


def test_geometric():
    x = draw(aten.geometric.default, blank(dtype=torch.int64), 0.25)
    assert x.min() == 1
    for k in (1, 2, 5):
        p = 0.25 * 0.75 ** (k - 1)
        assert abs((x == k).double().mean() - p) < 5 * math.sqrt(p * (1 - p) / N)


def check_counts(x, low, high):
    """Chi-squared test of uniform integers."""
    x = x.long()
    assert x.min() >= low
    assert x.max() < high
    counts = torch.bincount((x - low).flatten(), minlength=high - low).double()
    expected = x.numel() / (high - low)
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = high - low - 1
    assert statistic < freedom + 6 * math.sqrt(2 * freedom)


def test_integers():
    check_counts(draw(aten.randint.low, -3, 9, [N]), -3, 9)
    check_counts(draw(aten.randint.default, 7, [100, 200], dtype=torch.int32), 0, 7)
    check_counts(random_from(2, 12), 2, 12)
    check_counts(draw(aten.random.to, blank(), 5), 0, 5)
    check_counts(draw(aten.random.default, blank(dtype=torch.uint8)), 0, 256)
    check_counts(draw(aten.random.default, blank(dtype=torch.bool)), 0, 2)
    check_counts(draw(aten.randint_like.default, blank(), 6), 0, 6)
    check_counts(draw(aten.randint_like.Tensor, blank(), torch.tensor(6)), 0, 6)
    check_counts(draw(aten.randint_like.low_dtype, blank(), 1, 6), 1, 6)


def test_wide_integers():
    span = 3 << 60
    x = draw(aten.randint.low, -(1 << 61), span - (1 << 61), [N])
    assert abs((x < -(1 << 61) + span // 3).double().mean() - 1 / 3) < 0.02
    check_counts(random_from(250, None, torch.uint8), 250, 256)
    whole = random_from(-(2**63), None)
    assert abs((whole < 0).double().mean() - 0.5) < 0.02
    positive = draw(aten.random.default, blank(dtype=torch.int64))
    assert positive.min() >= 0
    assert positive.max() > 1 << 62
    floats = draw(aten.random.default, blank())
    assert 1 << 23 < floats.max() <= 1 << 24


def test_bernoulli():
    for p in (0.0, 0.3, 1.0):
        x = draw(aten.bernoulli.p, blank(), p)
        assert set(x.unique().tolist()) <= {0.0, 1.0}
        assert abs(x.mean() - p) <= 5 * math.sqrt(p * (1 - p) / N)
    chances = torch.tensor([0.0, 0.2, 1.0, 0.7]).repeat(N // 4)
    for x in (
        draw(aten.bernoulli.default, chances),
        draw(aten.bernoulli.Tensor, blank(dtype=torch.bool), chances.double()).float(),
    ):
        assert torch.allclose(x.reshape(-1, 4).mean(0), chances[:4], atol=0.035)


def test_randperm():
    x = draw(aten.randperm.default, 1000)
    assert torch.equal(x.sort()[0], torch.arange(1000))
    assert (x == torch.arange(1000)).sum() < 10
    assert draw(aten.randperm.default, 5, dtype=torch.int32).dtype is torch.int32
    assert draw(aten.randperm.default, 1).tolist() == [0]
    assert draw(aten.randperm.default, 0).tolist() == []


def test_multinomial():
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 4.0, 0.0])
    expected = weights / weights.sum()
    x = draw(aten.multinomial.default, weights, N, True)
    assert torch.allclose(torch.bincount(x, minlength=6) / N, expected, atol=0.02)
    x = draw(aten.multinomial.default, weights.expand(N, 6), 1)
    assert torch.allclose(torch.bincount(x[:, 0], minlength=6) / N, expected, atol=0.02)
    x = draw(aten.multinomial.default, weights.expand(N, 6), 3)
    assert torch.equal(x.sort(1)[0].unique(dim=0), torch.tensor([[1, 2, 4]]))
    first = torch.bincount(x[:, 0], minlength=6) / N
    assert torch.allclose(first, expected, atol=0.02)
    # The second after the first: p(2) + p(1) p(2) / (1 - p(1)) and so on.
    second = [
        sum(p * q / (1 - p) for j, p in enumerate(expected) if j != i)
        for i, q in enumerate(expected)
    ]
    assert torch.allclose(torch.bincount(x[:, 1], minlength=6) / N, torch.stack(second), atol=0.02)


def test_the_seed_decides():
    op, x = aten.uniform.default, blank(100)
    first, again, other = draw(op, x), draw(op, x), draw(op, x, seed=2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert (first == other).sum() < 3


def test_philox_known_answer():
    """The first two words of the vector published with the generator for key and counter 0."""
    graph = fx.Graph()
    blank = graph.call_function(aten.zeros.default, ([1],), {"dtype": torch.int64})
    graph.output((graph.call_function(RANDOM_FROM, (blank, -(2**63), None)),))
    bits = run_graph(graph, torch.int64, 1, seed=0).item() + 2**63
    assert (bits & 0xFFFFFFFF, bits >> 32) == (0x6627E8D5, 0xE169C58D)
