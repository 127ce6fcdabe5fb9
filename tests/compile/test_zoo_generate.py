"""`generate()` with dynamic and static cache, eager and with compiled decoding, gives the CPU's tokens and logits."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests.compile.zoo import ENTRIES, Inputs, to

DEVICE = "neuron"
NAMES = [name for name, entry in ENTRIES.items() if entry.prompt is not None]
NEW_TOKENS = 6

CACHES: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "static": {"cache_implementation": "static"},
}
# One model in every run, the others with `make zoo`.
MODELS = [name if name == "llama" else pytest.param(name, marks=pytest.mark.zoo) for name in NAMES]


def generate(model: nn.Module, inputs: Inputs, **how: Any) -> tuple[Tensor, Tensor]:
    """(tokens, logits of the new tokens), greedily, on the CPU."""
    found = model.generate(
        **inputs,
        **how,
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return found.sequences.cpu(), torch.stack(found.logits).cpu()


@cache
def on_cpu(name: str) -> tuple[Tensor, Tensor]:
    """What the others are compared with: the cache changes nothing."""
    return generate(ENTRIES[name].model().eval(), ENTRIES[name].start())


def check(name: str, model: nn.Module, **how: Any) -> None:
    tokens, logits = generate(model, to(DEVICE, ENTRIES[name].start()), **how)
    expected_tokens, expected_logits = on_cpu(name)
    assert tokens.tolist() == expected_tokens.tolist()
    # Float32 through several layers, each of which sums in another order.
    torch.testing.assert_close(logits, expected_logits, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def everything_stays_on_the_device() -> Any:
    torch._dynamo.reset()
    counters.clear()
    torch.neuron.reset_metrics()
    yield
    assert torch.neuron.metrics()["fallbacks"] == {}


def graphs() -> list[str]:
    """The programs of compiled graphs."""
    events = torch.neuron.metrics()["compile_events"]
    return [event["op"] for event in events if event["op"].startswith("graph")]


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("name", MODELS)
def test_eager(name: str, kind: str) -> None:
    check(name, ENTRIES[name].model().eval().to(DEVICE), disable_compile=True, **CACHES[kind])
    assert not graphs()


@pytest.mark.parametrize("name", MODELS)
def test_static_cache_decodes_in_one_program(name: str) -> None:
    """transformers compiles the decoding step by itself: it knows the device and its backend."""
    check(name, ENTRIES[name].model().eval().to(DEVICE), **CACHES["static"])
    assert len(graphs()) == 1
    assert not counters["graph_break"]


@pytest.mark.parametrize("name", MODELS)
def test_compiled_with_a_growing_cache(name: str) -> None:
    """One graph for the prompt, one with symbolic sizes for the rest: no trace for each length."""
    model = ENTRIES[name].model().eval().to(DEVICE)
    model.forward = torch.compile(model.forward, backend="neuron")
    check(name, model)
    assert graphs()
    assert not counters["graph_break"]
