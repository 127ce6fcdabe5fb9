"""options={"buckets": ...}: dynamic sizes padded to a few, where that cannot change a result."""

from __future__ import annotations

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

from torchneuron.compile import bucketed, options, padding
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


def map_step(x: Tensor) -> Tensor:
    """A higher-order operator over what would be padded."""
    return hop_map(lambda row: row.sum(0, keepdim=True) * row, x)


UNSAFE: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(1),
    "mean of all": lambda x: x - x.mean(),
    "softmax": lambda x: x.softmax(1),
    "attention": lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ x,
    "the size as a number": lambda x: x / x.shape[1],
    "the size as a result": lambda x: (x * 2, x.shape[1] + 1),
    "random": lambda x: F.dropout(x, 0.5),
    "cumulative": lambda x: x.flip(1).cumsum(1),
    "the last row": lambda x: x[:, -1] + 1,
    "rows of the end": lambda x: x[:, 1:] * 2,
    "filled with the size": lambda x: (
        x + torch.full((2, x.shape[1], 1), x.shape[1], device=x.device)
    ),
    "a new tensor of the size": lambda x: x + x.new_full((1,), x.shape[1]),
    "a branch": lambda x: torch.cond(x.min() > -9, torch.sin, torch.cos, (x,)),
    "a loop": lambda x: map_step(x).sum(1),
    "joined": lambda x: torch.cat([x, x], 1) + 1,
    "written": lambda x: x.mul_(2).sum(-1),
    "mixed": lambda x: x.transpose(1, 2).reshape(2, -1) * 2,
    "given back": lambda x: (x, x + 1),
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
    if name not in ("mixed", "given back"):
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


def test_training_equals_the_cpu() -> None:
    torch.manual_seed(0)
    model, twin = (nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    run = bucketing(model.to(DEVICE), {0: [4, 8]}, dynamic=True)
    for size in (3, 5, 7):
        x = torch.randn(size, 6)
        run(x.to(DEVICE)).square().mean().backward()
        twin(x).square().mean().backward()
    for a, e in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad.cpu(), e.grad, rtol=1e-4, atol=1e-5)


# Rows of a graph chosen at random, at a larger size and at their own: the analysis against the ops themselves.

STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": torch.sin,
    "transpose": lambda x: x.transpose(-1, -2),
    "softmax": lambda x: x.softmax(-1),
    "softmax of the first": lambda x: x.softmax(0),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "mean of the first": lambda x: x.mean(0, keepdim=True),
    "outer": lambda x: x @ x.transpose(-1, -2),
    "norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    "flat and back": lambda x: x.reshape(-1).exp().reshape(x.shape),
    "split": lambda x: x.reshape(x.shape[0], -1, 2).flip(-1).flatten(1) if x.shape[1] == 4 else x,
    "cumsum": lambda x: x.cumsum(0),
    "add": lambda x: x + x[:, :1],
    "sort": lambda x: x.sort(-1).values,
    "first": lambda x: x[:1] * x,
}


def proven(function: Callable[[Tensor], Tensor], size: int) -> bool:
    """Whether the analysis lets the first dimension of the function's argument be padded."""
    graphs: list[Any] = []

    def collect(gm: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    from torch._dynamo.backends.common import aot_autograd

    torch._dynamo.reset()
    x = torch.randn(size, 4)
    torch._dynamo.mark_dynamic(x, 0)
    torch.compile(function, backend=aot_autograd(fw_compiler=collect), fullgraph=True)(x)
    (gm,) = graphs
    tensors = [
        n for n in gm.graph.find_nodes(op="placeholder") if isinstance(n.meta["val"], Tensor)
    ]
    try:
        proof = padding.Proof(gm.graph, padding.expression(tensors[0].meta["val"].shape[0]))
    except padding.Unproven:
        return False
    (output,) = gm.graph.find_nodes(op="output")
    layout = proof.of(output.args[0][0])
    return layout[0] == (proof.symbol,) and not any(map(proof.is_padded, layout[1:]))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4))
def test_proven_graphs_keep_their_rows(steps: list[str]) -> None:
    def function(x: Tensor) -> Tensor:
        for step in steps:
            x = STEPS[step](x)
        return x

    if not proven(function, 7):
        return
    x, rest = torch.randn(7, 4), torch.randn(9, 4) * 100
    torch.testing.assert_close(function(torch.cat([x, rest]))[:7], function(x))


@pytest.mark.parametrize("wrong", [[], [0], [4, 2], [4, 4], "all", 8, [True], {}, {1: 8}])
def test_what_no_buckets_are_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="buckets must"):
        options.parse(None, {"buckets": wrong})


def test_the_next_bucket() -> None:
    def bucket(buckets: Any, size: int) -> int:
        symbol = sympy.Symbol("s")
        chosen = bucketed.Padding(symbol, None, (), buckets, lambda _: True)  # type: ignore[arg-type]
        return chosen.bucket({symbol: sympy.Integer(size)})

    assert [bucket((4, 8), size) for size in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 9]
    assert [bucket("powers_of_two", size) for size in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, 16]
