"""What torch.neuron.explain tells: graphs, breaks, roads, recompiles, programs; logs and traces."""

import inspect
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from torchneuron.compile.explain import Explanation, explaining
from torchneuron.compile.stages import Event, listening

DEVICE = "neuron"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def line_with(function: Callable[..., Any], text: str) -> str:
    """``file:line`` of the line of ``function`` that holds ``text``."""
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def broken(x: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.silu(x @ x)
    torch._dynamo.graph_break()
    return torch.addmm(y, y, y)


def test_graphs_breaks_and_programs() -> None:
    explanation = torch.neuron.explain(broken, torch.ones(3, 3, device=DEVICE))
    assert [graph.kind for graph in explanation.graphs] == ["inference", "inference"]
    (found,) = explanation.breaks
    assert found.line == line_with(broken, "graph_break()")
    assert "graph_break" in found.reason
    first, second = explanation.graphs
    assert first.roads["emitter"]["aten.mm.default"] == 1
    assert any("addmm" in op for ops in second.roads.values() for op in ops)
    assert [program.graph for program in explanation.programs] == [first.name, second.name]
    for program in explanation.programs:
        assert program.reason == "first use"
        assert program.stablehlo_bytes > 100
        assert program.executable_bytes is not None
        assert program.executable_bytes > 100
        assert (program.operands, program.outputs) == (1, 1)
    assert explanation.frames[0].function == "broken"
    assert not explanation.recompiles
    text = str(explanation)
    for part in ("GRAPHS", "GRAPH BREAKS", "OPS BY ROAD", "PROGRAMS", found.line, first.name):
        assert part in text
    assert "RECOMPILES" not in text


def scaled(x: torch.Tensor, factor: int) -> torch.Tensor:
    return x.sin() * factor


def test_a_recompile_tells_its_guard() -> None:
    function = torch.compile(scaled, backend="neuron", dynamic=False)
    x = torch.ones(3, device=DEVICE)
    with explaining() as explanation:
        function(x, 2)
        function(x, 3)
        function(torch.ones(4, device=DEVICE), 3)
    reasons = [frame.recompile_reason for frame in explanation.recompiles]
    assert len(reasons) == 2
    assert "factor" in reasons[0]
    assert "size mismatch at index 0. expected 3, actual 4" in reasons[1]
    assert all("scaled" in line for line in str(explanation).split("RECOMPILES")[1].split("[")[:1])


def test_another_shape_of_a_symbolic_graph_tells_what_changed() -> None:
    function = torch.compile(lambda x: x.cos() + 1, backend="neuron", dynamic=True)
    with explaining() as explanation:
        for size in (3, 4):
            function(torch.ones(2, size, device=DEVICE))
    (graph,) = explanation.graphs
    assert graph.symbolic
    assert len(explanation.programs) == 2
    assert explanation.programs[1].reason in ("3 became 4", "float32[2, 3] became float32[2, 4]")
    assert not explanation.recompiles


def test_forward_and_backward_of_a_compiled_module() -> None:
    model = torch.nn.Linear(3, 2).to(DEVICE)
    compiled = torch.compile(model, backend="neuron")
    x = torch.ones(4, 3, device=DEVICE)

    def step() -> None:
        compiled(x).sum().backward()

    with explaining() as explanation:
        step()
    assert {graph.kind for graph in explanation.graphs} == {"forward", "backward"}
    assert len(explanation.programs) == 2


def test_a_refused_graph_is_told() -> None:
    @torch.library.custom_op("tn_explain::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @opaque.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    function = torch.compile(
        lambda x: torch.cond(x.sum() > 0, opaque, torch.sin, (x,)),
        backend="neuron",
        options={"fallback": "eager"},
        fullgraph=True,
    )
    with pytest.warns(UserWarning, match="operation by operation"):
        explanation: Explanation = torch.neuron.explain(function, torch.ones(2, device=DEVICE))
    (graph,) = explanation.graphs
    assert "tn_explain.opaque.default" in graph.refused
    assert explanation.fallbacks[graph.name] == 1
    assert "FAILED" in str(explanation)


def test_nothing_compiled_says_how() -> None:
    with explaining() as explanation:
        pass
    assert "set_default_backend('neuron')" in str(explanation)


def test_it_is_json() -> None:
    explanation = torch.neuron.explain(torch.exp, torch.ones(2, device=DEVICE))
    told = json.loads(json.dumps(explanation.as_dict()))
    assert told["graphs"][0]["roads"] == {"emitter": {"aten.exp.default": 1}}


def test_the_stages_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = []
    with caplog.at_level(logging.INFO, "torchneuron.compile"), listening(events.append):
        torch.compile(torch.tanh, backend="neuron")(torch.ones(5, 7, device=DEVICE))
    stages = [event.stage for event in events]
    assert stages in (["capture", "lower", "program"], ["capture", "program"])
    logged = [record.getMessage() for record in caplog.records]
    assert [message.split(": ")[1].split(",")[0] for message in logged] == stages
    assert "aten.tanh.default" in logged[0]


SCRIPT = """
import torch
torch.compile(torch.tanh, backend="neuron")(torch.ones(5).to("neuron"))
"""


def test_torch_logs_and_tlparse_show_them(run_python: Any, tmp_path: Path) -> None:
    done = run_python(
        SCRIPT,
        timeout=280,
        TORCH_LOGS="+torchneuron.compile",
        TORCH_TRACE=str(tmp_path / "trace"),
        TORCHNEURON_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert "graph 0 inference [0/0]: capture" in done.stderr
    assert "graph 0 inference [0/0]: program" in done.stderr
    (trace,) = (tmp_path / "trace").iterdir()
    names = [
        json.loads(line.split("] ", 1)[1])["artifact"]["name"]
        for line in trace.read_text().splitlines()
        if '"torchneuron_' in line and "] {" in line
    ]
    assert names == [
        "torchneuron_capture_graph_0_inference",
        "torchneuron_capture_graph_0_inference_text",
        "torchneuron_lower_graph_0_inference",
        "torchneuron_lower_graph_0_inference_text",
        "torchneuron_program_graph_0_inference",
    ]
    assert "stablehlo.tanh" in trace.read_text()
