"""``torch.neuron.explain``: what ``torch.compile(backend="neuron")`` makes of a function, and why.

Frames, recompilations and graph breaks are what TorchDynamo notes of itself; graphs and programs
come from the events of ``torchneuron.compile.stages``.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo import utils as dynamo
from torch._functorch import config as functorch_config

from torchneuron import _C
from torchneuron.compile.stages import Event, listening
from torchneuron.program.metrics import METRICS, reason_to_compile

_FRAMES = 10_000
_SIGNATURES = 64


@dataclass(frozen=True)
class Frame:
    """A function that TorchDynamo compiled, or compiled anew because of ``recompile_reason``."""

    compile_id: str
    function: str
    line: str
    seconds: float
    backend_seconds: float
    recompile_reason: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Break:
    """Where TorchDynamo had to leave Python to Python, and why."""

    line: str
    code: str
    reason: str


@dataclass(frozen=True)
class Graph:
    """A forward, backward or inference graph; ``roads`` counts its ops by road and name, ``refused``
    says why it could not be compiled.
    """

    name: str
    kind: str
    compile_id: str
    arguments: int
    results: int
    mutations: int
    symbolic: bool
    roads: dict[str, dict[str, int]]
    refused: str = ""


@dataclass(frozen=True)
class Cut:
    """An operation that runs by itself, between the programs of its graph: which, why, from where."""

    op: str
    reason: str
    line: str
    graph: str
    compile_id: str


@dataclass(frozen=True)
class Program:
    """A program of a graph; ``reason`` says what was new about the arguments.

    ``lowering_seconds`` is 0 for a program that was loaded; ``seconds`` counts compiling or loading.
    """

    graph: str
    arguments: str
    reason: str
    origin: str
    lowering_seconds: float
    seconds: float
    stablehlo_bytes: int
    executable_bytes: int | None
    operands: int
    outputs: int


@dataclass
class Explanation:
    """What happened; ``str`` gives tables, ``as_dict`` what JSON takes."""

    frames: list[Frame] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    fallbacks: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def recompiles(self) -> list[Frame]:
        """The frames that were compiled before."""
        return [frame for frame in self.frames if frame.recompile_reason]

    def as_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, texts and numbers."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Tables for people."""
        from torchneuron.compile.explain_text import text

        return text(self)


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Compile ``function(*args, **kwargs)`` with the backend ``neuron``, run it once, and tell what
    became of it.

    ``function`` is a function or module; one that ``torch.compile`` gave keeps its options. What
    TorchDynamo has compiled before is forgotten (``torch._dynamo.reset``), as by
    ``torch._dynamo.explain``. What the call raises is raised.

        print(torch.neuron.explain(model, torch.randn(8, 16, device="neuron")))
    """
    torch._dynamo.reset()
    compiled = hasattr(function, "_torchdynamo_orig_callable") or isinstance(
        function, torch._dynamo.OptimizedModule
    )
    # Our events come from our backend, so that a function is compiled with it unless it is already.
    chosen = function if compiled else torch.compile(function, backend="neuron")
    with explaining() as explanation:
        chosen(*args, **kwargs)
        _C.synchronize(_C.current_device())
    return explanation


@contextmanager
def explaining() -> Iterator[Explanation]:
    """Explain everything that is compiled while the block runs; complete when the block ends.

    AOTAutogradCache is off meanwhile: of graphs that it has one would learn nothing.

    with explaining() as explanation:
        train()
    print(explanation)
    """
    explanation = Explanation()
    events: list[Event] = []
    breaks = len(dynamo.graph_break_reasons)
    fallbacks = Counter(METRICS.snapshot()["fallbacks"])
    limit = dynamo._compilation_metrics.maxlen or _FRAMES
    dynamo.set_compilation_metrics_limit(_FRAMES)
    began, start = time.time(), time.perf_counter()
    try:
        with (
            listening(events.append),
            functorch_config.patch(enable_autograd_cache=False),
        ):
            yield explanation
    finally:
        explanation.seconds = time.perf_counter() - start
        explanation.frames = list(_frames(began))
        explanation.breaks = list(_breaks(breaks))
        explanation.graphs = list(_graphs(events))
        explanation.cuts = list(_cuts(events))
        explanation.programs = list(_programs(events))
        explanation.fallbacks = dict(Counter(METRICS.snapshot()["fallbacks"]) - fallbacks)
        dynamo.set_compilation_metrics_limit(limit)


def _frames(began: float) -> Iterator[Frame]:
    for metrics in dynamo.get_compilation_metrics():
        if (metrics.start_time_us or 0) < began * 1e6 or metrics.co_name is None:
            continue
        yield Frame(
            str(metrics.compile_id or ""),
            metrics.co_name,
            f"{metrics.co_filename}:{metrics.co_firstlineno}",
            metrics.entire_frame_compile_time_s or 0.0,
            metrics.backend_compile_time_s or 0.0,
            metrics.recompile_reason or "",
            metrics.fail_reason or "",
        )


def _breaks(first: int) -> Iterator[Break]:
    seen = set()
    # A reset of TorchDynamo meanwhile has emptied the list.
    reasons = dynamo.graph_break_reasons
    for found in reasons[first:] if len(reasons) >= first else reasons:
        frame = found.user_stack[-1] if found.user_stack else None
        line = f"{frame.filename}:{frame.lineno}" if frame is not None else ""
        if (line, found.reason) not in seen:
            seen.add((line, found.reason))
            yield Break(line, (frame.line or "") if frame is not None else "", found.reason)


def _graphs(events: Iterable[Event]) -> Iterator[Graph]:
    roads: dict[str, dict[str, str]] = defaultdict(dict)
    refused: dict[str, str] = {}
    for event in events:
        if event.stage == "refuse":
            refused[event.graph] = event.details["reason"]
        elif event.stage in ("lower", "program"):
            roads[event.graph] |= event.details["roads"]
    for event in events:
        if event.stage == "capture":
            told = event.details
            yield Graph(
                event.graph,
                told["kind"],
                event.compile_id,
                told["arguments"],
                told["results"],
                told["mutations"],
                told["symbolic"],
                _by_road(told["ops"], roads[event.graph]),
                refused.get(event.graph, ""),
            )


def _cuts(events: Iterable[Event]) -> Iterator[Cut]:
    for event in events:
        if event.stage == "cut":
            yield Cut(**event.details, graph=event.graph, compile_id=event.compile_id)


def _by_road(ops: Mapping[str, int], roads: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """The ops of a graph by the road they took; what took none is arithmetic on sizes and tuples."""
    found: dict[str, dict[str, int]] = {}
    for op, count in sorted(ops.items(), key=lambda item: (-item[1], item[0])):
        road = roads.get(op) or roads.get(f"higher_order.{op}")
        if road is not None:
            found.setdefault(road, {})[op] = count
    return found


def _programs(events: Iterable[Event]) -> Iterator[Program]:
    known: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_SIGNATURES))
    lowering: dict[tuple[str, str], float] = {}
    for event in events:
        told = event.details
        if event.stage == "lower":
            lowering[event.graph, told["arguments"]] = event.seconds
        elif event.stage == "program":
            signatures = known[event.graph]
            reason = reason_to_compile(told["arguments"], signatures)
            signatures.append(told["arguments"])
            seconds = lowering.pop((event.graph, told["arguments"]), 0.0)
            yield Program(
                event.graph,
                told["arguments"],
                reason,
                told["origin"],
                seconds,
                event.seconds - seconds,
                told["stablehlo_bytes"],
                told["executable_bytes"],
                told["operands"],
                told["outputs"],
            )
