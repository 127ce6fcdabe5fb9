"""A training step of each model in the zoo, eager and compiled: outputs, gradients and buffers equal the CPU's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree

from tests.compile.zoo import ENTRIES, Inputs, to

DEVICE = "neuron"
# What every run trains: a transformer, a mixture of experts, a convolutional and a recurrent net. The
# others take minutes together.
ALWAYS = ("gpt2", "qwen3_moe", "resnet", "lstm")
MODELS = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.zoo) for name in ENTRIES]


@dataclass(frozen=True)
class Step:
    """What a training step leaves behind: every output, gradient and buffer, on the CPU."""

    outputs: list[Tensor]
    gradients: dict[str, Tensor | None]
    buffers: dict[str, Tensor]


def train(model: nn.Module, call: Callable[..., Any], inputs: Inputs) -> Step:
    """Forward and backward of ``model``, which is called through ``call``."""
    outputs = dict(call(**inputs))
    outputs["loss"].backward()
    leaves = pytree.tree_leaves(outputs)
    return Step(
        [leaf.detach().cpu() for leaf in leaves if isinstance(leaf, Tensor)],
        {
            name: parameter.grad.cpu() if parameter.grad is not None else None
            for name, parameter in model.named_parameters()
        },
        {name: buffer.cpu() for name, buffer in model.named_buffers()},
    )


@cache
def on_cpu(name: str) -> Step:
    """The step that the others are compared with."""
    model = ENTRIES[name].model().train()
    return train(model, model, ENTRIES[name].sample())


def compare(actual: Step, expected: Step) -> None:
    """Float32 through several layers, each of which sums in another order: 1e-4 instead of 1.3e-6.

    An element of a gradient may be the small difference of large terms (for the bias of an
    attention's keys it is exactly zero), so that the smallest error told apart follows the largest
    gradient.
    """
    tolerance = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(actual.outputs, expected.outputs, **tolerance)
    torch.testing.assert_close(actual.buffers, expected.buffers, **tolerance)
    assert {k for k, g in actual.gradients.items() if g is not None} == {
        k for k, g in expected.gradients.items() if g is not None
    }
    largest = max(float(g.abs().max()) for g in expected.gradients.values() if g is not None)
    assert largest > 0
    for name, gradient in expected.gradients.items():
        torch.testing.assert_close(
            actual.gradients[name],
            gradient,
            rtol=1e-4,
            atol=1e-5 * largest,
            msg=lambda text, name=name: f"gradient of {name}: {text}",
        )


def graph_breaks() -> Counter[str]:
    """How often Dynamo broke a graph, by its first line without the numbers in it."""
    breaks: Counter[str] = Counter()
    for reason, count in counters["graph_break"].items():
        breaks[re.sub(r"\d+", "#", reason.splitlines()[0])] += count
    return breaks


@pytest.fixture(autouse=True)
def everything_stays_on_the_device() -> Any:
    torch.neuron.reset_metrics()
    yield
    assert torch.neuron.metrics()["fallbacks"] == {}


@pytest.mark.parametrize("name", MODELS)
def test_eager(name: str) -> None:
    model = ENTRIES[name].model().train().to(DEVICE)
    compare(train(model, model, to(DEVICE, ENTRIES[name].sample())), on_cpu(name))


@pytest.mark.parametrize("name", MODELS)
def test_compiled(name: str) -> None:
    """The graph may break only where Dynamo breaks it for Inductor too, which is for the CPU."""
    torch._dynamo.reset()
    counters.clear()
    model = ENTRIES[name].model().train().to(DEVICE)
    compiled = torch.compile(model, backend="neuron")
    compare(train(model, compiled, to(DEVICE, ENTRIES[name].sample())), on_cpu(name))
    if breaks := graph_breaks():
        torch._dynamo.reset()
        counters.clear()
        torch.compile(ENTRIES[name].model().train(), backend="eager")(**ENTRIES[name].sample())
        assert breaks == graph_breaks()


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["lstm", "mamba", "qwen3_moe", "t5"])
def test_breaks_are_inductors(name: str) -> None:
    """Where TorchDynamo breaks the forward for Inductor on the CPU, and nowhere else."""
    found = []
    for backend, device in (("neuron", DEVICE), ("inductor", "cpu")):
        torch._dynamo.reset()
        counters.clear()
        model = ENTRIES[name].model().eval().to(device)
        with torch.no_grad():
            torch.compile(model, backend=backend)(**to(device, ENTRIES[name].sample()))
        found.append((graph_breaks(), counters["stats"]["unique_graphs"]))
    assert found[0] == found[1]
