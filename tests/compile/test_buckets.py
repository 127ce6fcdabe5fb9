"""options={"buckets": ...}: dynamic sizes padded to a few, where that cannot change a result."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._higher_order_ops import map as hop_map
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from torchneuron.compile import bucket_plan, masks, options, padding, proving, regrown
from torchneuron.compile.stages import Event, listening

DEVICE = "neuron"
BUCKETS = {1: [4, 8, 16]}
SIZES = (3, 5, 6, 7, 9, 12)


def bucketing(
    function: Callable[..., Any], buckets: Any = BUCKETS, **kwargs: Any
) -> Callable[..., Any]:
    chosen = {"buckets": buckets}
    return torch.compile(function, backend="neuron", fullgraph=True, options=chosen, **kwargs)


def padded_calls() -> int:
    return int(torch.neuron.metrics()["padded_calls"])


def tables() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(n, 6, generator=generator) for n in (11, 6, 6))  # type: ignore[return-value]


def mlp(x: Tensor, tokens: Tensor) -> Any:
    table, first, second = (t.to(x.device) for t in TABLES)
    hidden = F.gelu(F.linear(x + F.embedding(tokens, table), first))
    return F.layer_norm(F.linear(hidden, second), (6,)), hidden.softmax(-1)


def rows(x: Tensor, tokens: Tensor) -> Any:
    best = x.max(-1)
    place = torch.arange(x.shape[1], device=x.device)[None, :] + tokens
    return (
        best.values + place,
        x.transpose(1, 2) * 1,
        torch.cat([x, x * 2], -1).sum(2),
        x.amax((0, 2)),
    )


def flattened(x: Tensor, tokens: Tensor) -> Any:
    first = TABLES[1].to(x.device)
    flat = x.reshape(-1, 6) @ first
    return flat, flat.view(x.shape[0], x.shape[1], 2, 3).permute(0, 2, 1, 3).exp(), tokens > 3


TABLES = tables()
PADDED = (mlp, rows, flattened)


@pytest.mark.parametrize("function", PADDED)
def test_equals_the_exact_shapes_in_few_programs(function: Callable[..., Any]) -> None:
    torch.neuron.reset_metrics()
    run = bucketing(function, dynamic=True)
    traced = counters["stats"]["unique_graphs"]
    for size in SIZES:
        x, tokens = torch.randn(2, size, 6), torch.randint(0, 11, (2, size))
        actual = tree_leaves(run(x.to(DEVICE), tokens.to(DEVICE)))
        expected = tree_leaves(function(x, tokens))
        torch.testing.assert_close([leaf.cpu() for leaf in actual], expected, rtol=1e-4, atol=1e-5)
        assert [leaf.is_contiguous() for leaf in actual] == [x.is_contiguous() for x in expected]
    assert counters["stats"]["unique_graphs"] - traced == 1
    assert padded_calls() == len(SIZES)
    compiled = [e for e in torch.neuron.metrics()["compile_events"] if e["op"].startswith("graph")]
    assert len(compiled) <= 3


def spoilt(x: Tensor) -> Tensor:
    """NaN where x is 0, so in padded rows."""
    return x.abs().reciprocal() + x.abs().log()


def attended(x: Tensor, **kwargs: Any) -> Tensor:
    """Of two heads."""
    q, k, v = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in (x, spoilt(x), spoilt(x)))
    return F.scaled_dot_product_attention(q, k, v, **kwargs)


def distances(x: Tensor) -> Tensor:
    places = torch.arange(x.shape[1], device=x.device).to(x.dtype)
    return (places[:, None] - places[None, :]).abs().neg()


def targets(x: Tensor) -> Tensor:
    """A class for each row."""
    return x.argmax(-1).flatten()


# Sums and the like along the padded dimension.
MASKED: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: spoilt(x).sum(1),
    "sum of all": lambda x: spoilt(x).sum(),
    "mean": lambda x: (spoilt(x).mean(1), spoilt(x).mean((0, 1), keepdim=True)),
    "mean of all": lambda x: x - spoilt(x).mean(),
    "mean in half precision": lambda x: x.bfloat16().mean(1),
    "extremes": lambda x: (spoilt(x).amax(1), x.abs().amin((1, 2)), x.max(), x.long().min()),
    "places": lambda x: (spoilt(x).max(1), x.min(1), x.argmax(1), spoilt(x).argmin(1)),
    "logic": lambda x: ((x == 0).any(), (x != 0).all(1), (x < -9).any(1)),
    "products": lambda x: (x.prod(1), (x * x).prod()),
    "softmax": lambda x: (spoilt(x).softmax(1), x.log_softmax(1), x.logsumexp((1, 2))),
    "norm": lambda x: F.normalize(spoilt(x), dim=1),
    "flattened": lambda x: (spoilt(x).flatten(0, 1).sum(0), x.flatten(1, 2).softmax(1)),
    "both dimensions": lambda x: (x @ x.transpose(1, 2)).reciprocal().sum((1, 2)),
    "product": lambda x: spoilt(x).transpose(1, 2) @ spoilt(x),
    "formula of attention": lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ spoilt(x),
    "causal attention": lambda x: attended(x, is_causal=True),
    "attention": attended,
    "attention with distances": lambda x: attended(x, attn_mask=distances(x)),
    "attention to the past": lambda x: attended(x, attn_mask=distances(x).tril() < 0.5),
    "prefixes": lambda x: (x.cumsum(1), x.cumprod(1), x.cummax(1), x.logcumsumexp(1)),
    "triangle": lambda x: (x @ x.transpose(1, 2)).tril(-1).sum(-1),
    "the size as a number": lambda x: x / x.shape[1] + x.shape[1] * 2,
    "the size as a result": lambda x: (x * 2, x.shape[1] + 1),
    "compared with the size": lambda x: (x.argmax(1) * 2 < x.shape[1], x > x.shape[1] - 4),
    "the root of the size": lambda x: x.sum(1) * x.shape[1] ** -0.5,
    "filled with the size": lambda x: (
        x + torch.full((2, x.shape[1], 1), x.shape[1], device=x.device)
    ),
    "a new tensor of the size": lambda x: x + x.new_full((1,), x.shape[1]),
    "first rows": lambda x: (x[:, 1] + 1, x[:, :2] * 2, x[:, : x.shape[1]] + 1),
    "positions": lambda x: x + torch.ones(20, 6, device=x.device).cumsum(0)[: x.shape[1]],
    "losses": lambda x: (
        F.cross_entropy(spoilt(x).flatten(0, 1), targets(x)),
        F.cross_entropy(x.flatten(0, 1), targets(x), reduction="sum", label_smoothing=0.1),
        F.cross_entropy(x.flatten(0, 1), targets(x), reduction="none"),
    ),
    "given back": lambda x: (x, x[:, None], x + 1),
    "results that share memory": lambda x: ((y := x * 2), y.flatten(0, 1), y.transpose(0, 1)),
}


@pytest.mark.parametrize("name", MASKED)
def test_what_computes_along_the_padded_dimension_is_masked(name: str) -> None:
    torch.neuron.reset_metrics()
    function = MASKED[name]
    run = bucketing(function, {1: [16]}, dynamic=True)
    torch.manual_seed(1)
    events: list[Event] = []
    with listening(events.append):
        for size in (3, 5, 6):
            x = torch.randn(2, size, 6)
            check(run(x.to(DEVICE)), function(x))
    assert padded_calls() == 3
    assert [event.stage for event in events].count("program") == 1


def check(actual: Any, expected: Any) -> None:
    for a, e in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        a = a.cpu() if isinstance(a, Tensor) else a
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5, check_device=False)


def map_step(x: Tensor) -> Tensor:
    """A higher-order operator over what would be padded."""
    return hop_map(lambda row: row.sum(0, keepdim=True) * row, x)


UNSAFE: dict[str, Callable[[Tensor], Any]] = {
    "random": lambda x: F.dropout(x, 0.5),
    "cumulative": lambda x: x.flip(1).cumsum(1),
    "the last row": lambda x: x[:, -1] + 1,
    "rows of the end": lambda x: x[:, 1:] * 2,
    "a branch": lambda x: torch.cond(x.min() > -9, torch.sin, torch.cos, (x,)),
    "a loop": lambda x: map_step(x).sum(1),
    "joined": lambda x: torch.cat([x, x], 1) + 1,
    "written": lambda x: x.mul_(2).sum(-1),
    "mixed": lambda x: x.transpose(1, 2).reshape(2, -1) * 2,
    "place among all": lambda x: x.argmax(),
    "sorted": lambda x: x.sort(1).values,
    "standard deviation": lambda x: F.batch_norm(x.transpose(1, 2), None, None, training=True),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_is_not_proven_runs_at_its_own_size(name: str) -> None:
    torch.neuron.reset_metrics()
    function = UNSAFE[name]
    run = bucketing(function, dynamic=True)
    events: list[Event] = []
    with listening(events.append):
        for size in (3, 5):
            x = torch.randn(2, size, 6)
            y = x.to(DEVICE)
            torch.manual_seed(0)
            actual = tree_leaves(run(y))
            if name == "random":
                torch.manual_seed(0)
                expected = tree_leaves(function(x.to(DEVICE)))
            else:
                expected = tree_leaves(function(x))
            for a, e in zip(actual, expected, strict=True):
                torch.testing.assert_close(
                    a.cpu() if isinstance(a, Tensor) else a, e, check_device=False
                )
    if name != "mixed":
        assert padded_calls() == 0
        told = [event.details["refused"] for event in events if event.stage == "pad"]
        assert told
        assert all(told)


def test_a_larger_size_than_all_buckets_runs_as_it_is() -> None:
    torch.neuron.reset_metrics()
    run = bucketing(lambda x: x.sin(), {0: [4]}, dynamic=True)
    for size, calls in ((3, 1), (4, 1), (9, 1)):
        x = torch.randn(size, 2)
        torch.testing.assert_close(run(x.to(DEVICE)).cpu(), x.sin())
        assert padded_calls() == calls


def test_two_dimensions_and_powers_of_two() -> None:
    torch.neuron.reset_metrics()

    def both(x: Tensor) -> Tensor:
        return (x.reshape(-1, 5) @ torch.ones(5, 2, device=x.device)).view(*x.shape[:2], 2).tanh()

    run = bucketing(both, {0: "powers_of_two", 1: (4, 8)}, dynamic=True)
    for sizes in ((3, 5), (6, 3), (7, 9)):
        x = torch.randn(*sizes, 5)
        torch.testing.assert_close(run(x.to(DEVICE)).cpu(), both(x), rtol=1e-4, atol=1e-5)
    assert padded_calls() > 3


def test_guards_of_the_trace_hold_for_buckets() -> None:
    """The graph is that of small sizes."""
    torch.neuron.reset_metrics()
    run = bucketing(lambda x: x * 2 if x.shape[0] < 7 else x * 3, {0: [4, 8]}, dynamic=True)
    for size, factor in ((3, 2), (5, 2), (7, 3)):
        x = torch.ones(size, 2)
        assert torch.equal(run(x.to(DEVICE)).cpu(), x * factor)


class Decoder(nn.Module):
    """A small transformer with learned positions; ``attention`` chooses its mask."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        self.attention = attention
        self.embed, self.place = nn.Embedding(11, 8), nn.Embedding(20, 8)
        self.norm, self.last = nn.LayerNorm(8), nn.RMSNorm(8)
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 11)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        batch, length = tokens.shape
        x = self.embed(tokens) + self.place.weight[:length]
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mask = distances(x) if self.attention == "distances" else None
        causal = self.attention == "causal"
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        x = x + y.transpose(1, 2).reshape(batch, length, 8)
        return F.cross_entropy(self.head(self.last(x)).flatten(0, -2), targets.flatten())


class Pictures(nn.Module):
    """Convolutions, normalised in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(36, 5)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.layers(x)), targets)


def sentences(size: int) -> tuple[Tensor, Tensor]:
    return torch.randint(11, (2, size)), torch.randint(11, (2, size))


def pictures(size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 3, 8, 8), torch.randint(5, (size,))


TRAINED: dict[str, tuple[nn.Module, Any, Callable[[int], tuple[Tensor, Tensor]]]] = {
    **{kind: (Decoder(kind), {1: [16]}, sentences) for kind in ("causal", "all", "distances")},
    "pictures": (Pictures(), {0: [8]}, pictures),
}


@pytest.mark.parametrize("name", TRAINED)
def test_training_runs_forward_and_backward_in_one_program_each(name: str) -> None:
    torch.manual_seed(0)
    torch.neuron.reset_metrics()
    twin, buckets, batch = TRAINED[name]
    model = copy.deepcopy(twin).to(DEVICE)
    run = bucketing(model, buckets)
    events: list[Event] = []
    with listening(events.append):
        for size in (7, 5, 6, 3):
            given = batch(size)
            moved = [x.to(DEVICE) for x in given]
            for x in moved:
                torch._dynamo.mark_dynamic(x, next(iter(buckets)))
            model.zero_grad(), twin.zero_grad()
            loss, expected = run(*moved), twin(*given)
            loss.backward(), expected.backward()
            check(loss, expected)
            check([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])
    assert [event.stage for event in events].count("program") == 2
    assert padded_calls() == 8


GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: (x.softmax(1) * x).sum(),
    "log softmax": lambda x: (x.log_softmax(1) * x).sum(1),
    "mean": lambda x: (x - x.mean(1, keepdim=True)).square().mean(),
    "logsumexp": lambda x: x.logsumexp(1),
    "product": lambda x: (x.transpose(1, 2) @ x.exp()).tanh(),
    "first rows": lambda x: x[:, 1] * x[:, :2].sum(1),
    "embedded": lambda x: F.embedding(x.argmax(-1), TABLES[0].to(x.device)) @ x.transpose(1, 2),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_the_wanted_rows(name: str) -> None:
    torch.neuron.reset_metrics()
    run = bucketing(GRADIENTS[name], {1: [16]}, dynamic=True)
    for size in (3, 5):
        x = torch.randn(2, size, 6, requires_grad=True)
        y = x.detach().to(DEVICE).requires_grad_()
        run(y).sum().backward()
        GRADIENTS[name](x).sum().backward()
        check(y.grad, x.grad)
    assert padded_calls() >= 4


def test_training_on_two_padded_dimensions() -> None:
    torch.neuron.reset_metrics()
    twin = Decoder("causal")
    model = copy.deepcopy(twin).to(DEVICE)
    run = bucketing(model, {0: [4], 1: [16]}, dynamic=True)
    for sizes in ((3, 7), (2, 5), (3, 5)):
        given = [torch.randint(11, sizes) for _ in range(2)]
        model.zero_grad(), twin.zero_grad()
        run(*(x.to(DEVICE) for x in given)).backward()
        twin(*given).backward()
        check([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])
    assert padded_calls() == 12


def test_positions_end_before_the_bucket() -> None:
    """There are 11 rows: the bucket of 16 is not for this graph."""
    torch.neuron.reset_metrics()
    table = nn.Embedding(11, 6)
    place = copy.deepcopy(table).to(DEVICE)
    run = bucketing(lambda x: x + place.weight[: x.shape[1]], dynamic=True)
    for size, calls in ((5, 1), (9, 1), (7, 2)):
        x = torch.randn(2, size, 6)
        check(run(x.to(DEVICE)), x + table.weight[:size])
        assert padded_calls() == calls


# A graph chosen at random, with rows too many and without: the analysis against the ops themselves.

STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": torch.sin,
    "logarithm": torch.log,
    "reciprocal": torch.reciprocal,
    "transpose": lambda x: x.transpose(-1, -2),
    "softmax": lambda x: x.softmax(-1),
    "softmax of the first": lambda x: x.softmax(0),
    "log softmax": lambda x: x.log_softmax(0),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "sum of the first": lambda x: x.sum(0),
    "sum of all": lambda x: x - x.sum(),
    "mean of the first": lambda x: x.mean(0, keepdim=True),
    "largest": lambda x: x - x.amax(0) + x.logsumexp(0),
    "place of the smallest": lambda x: x * x.argmin(0),
    "all": lambda x: x * x.isfinite().all(0),
    "outer": lambda x: x @ x.transpose(-1, -2),
    "inner": lambda x: x.transpose(-1, -2) @ x,
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], *2 * [x[None, None]])[
        0, 0
    ],
    "norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    "flat and back": lambda x: x.reshape(-1).exp().reshape(x.shape),
    "flat softmax": lambda x: x.reshape(-1).softmax(0).reshape(x.shape),
    "split": lambda x: x.reshape(x.shape[0], -1, 2).flip(-1).flatten(1) if x.shape[1] == 4 else x,
    "cumsum": lambda x: x.cumsum(0),
    "flat cumsum": lambda x: x.reshape(-1).cumsum(0).reshape(x.shape),
    "add": lambda x: x + x[:, :1],
    "sort": lambda x: x.sort(-1).values,
    "first": lambda x: x[:1] * x,
    "number": lambda x: x / x.shape[0],
    "triangle": lambda x: x.tril(-1),
}
REAL, LARGER = 7, 16


def traced(function: Callable[[Tensor], Tensor], x: Tensor) -> torch.fx.GraphModule:
    """The inference graph of a function whose argument's first dimension is a symbol."""
    graphs: list[torch.fx.GraphModule] = []

    def collect(gm: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    from torch._dynamo.backends.common import aot_autograd

    torch._dynamo.reset()
    torch._dynamo.mark_dynamic(x, 0)
    torch.compile(function, backend=aot_autograd(fw_compiler=collect), fullgraph=True)(x)
    return graphs[0]


def padded(function: Callable[[Tensor], Tensor], x: Tensor, rest: Tensor) -> Tensor | None:
    """The function's result at the larger size, cut back; None if the analysis does not let it."""
    gm = traced(function, x)
    arguments = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    (value,) = (one for one in arguments if isinstance(one, Tensor))
    symbol = proving.expression(value.shape[0])
    (output,) = gm.graph.find_nodes(op="output")
    try:
        proof = padding.prove(gm.graph, symbol)
        masked = masks.MaskedGraph(gm, proof, output.args[0])
    except proving.Unproven:
        return None
    given = [torch.cat([x, rest]) if isinstance(one, Tensor) else LARGER for one in arguments]
    sizes = {symbol: sympy.Integer(REAL)}
    given += [
        torch.tensor(regrown.evaluate(number, sizes), dtype=dtype)
        for number, dtype in masked.operands
    ]
    (result,) = masked.module(*given)
    larger = {symbol: sympy.Integer(LARGER)}
    return regrown.cut(result, proof.of(output.args[0][0]), symbol, larger, REAL)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4))
def test_proven_graphs_keep_their_rows(steps: list[str]) -> None:
    def function(x: Tensor) -> Tensor:
        for step in steps:
            x = STEPS[step](x)
        return x

    x = torch.rand(REAL, 4) + 0.5
    rest = (torch.randn(LARGER - REAL, 4) * 100).clamp(min=0).reciprocal()
    result = padded(function, x, rest)
    if result is not None:
        expected = function(x)
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("wrong", [[], [0], [4, 2], [4, 4], "all", 8, [True], {}, {1: 8}])
def test_what_no_buckets_are_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="buckets must"):
        options.parse(None, {"buckets": wrong})


def test_the_next_bucket() -> None:
    def bucket(buckets: Any, size: int) -> int | None:
        symbol = sympy.Symbol("s")
        chosen = bucket_plan.Padding(symbol, buckets, (1, 16))
        return chosen.bucket({symbol: sympy.Integer(size)})

    assert [bucket((4, 8), size) for size in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, None]
    assert [bucket("powers_of_two", size) for size in (1, 3, 8, 9, 17)] == [1, 4, 8, 16, None]
