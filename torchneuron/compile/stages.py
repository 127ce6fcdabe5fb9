"""The stages of a graph on its way to a program, told to whoever wants to know.

    capture    TorchDynamo has a graph; AOTAutograd has made a forward, backward or inference graph
    lower      a graph and the arguments of one call have become StableHLO
    program    an executable is there: compiled, or loaded from the disk cache or memory
    cut        a graph has an operation that runs by itself, between programs
    pad        a size of a graph's arguments may be padded to buckets, or why not
    refuse     a graph cannot be compiled

Each stage goes to Python's logger ``torchneuron.compile`` (``TORCH_LOGS="+torchneuron"`` shows it),
into PyTorch's structured trace, from which ``tlparse`` makes a report (``TORCH_TRACE=<dir>``), and to
the listeners of ``listening``, of which ``torch.neuron.explain`` is one.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from torch._guards import CompileContext, CompileId
from torch._logging._internal import trace_structured

from torchneuron.compile.captured import CapturedGraph
from torchneuron.program.compiler import Program

Stage = Literal["capture", "lower", "program", "cut", "pad", "refuse"]

log = logging.getLogger("torchneuron.compile")
_listeners: list[Callable[[Event], None]] = []
_lock = threading.Lock()


@dataclass(frozen=True)
class Event:
    """One stage of one graph: how long it took, and what it tells of itself.

    ``graph`` is the graph's name, ``compile_id`` TorchDynamo's number of the frame's compilation
    (``0/1`` is the first recompilation of frame 0); empty where there is none.
    """

    stage: Stage
    graph: str
    seconds: float = 0.0
    compile_id: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


def current_compile_id() -> CompileId | None:
    """TorchDynamo's number of the compilation under way."""
    return CompileContext.current_compile_id()


@contextmanager
def listening(listener: Callable[[Event], None]) -> Iterator[None]:
    """Call ``listener`` with every event of this process while the block runs.

    events: list[Event] = []
    with listening(events.append):
        compiled(x)
    """
    with _lock:
        _listeners.append(listener)
    try:
        yield
    finally:
        with _lock:
            _listeners.remove(listener)


def tell(
    stage: Stage,
    graph: str,
    seconds: float = 0.0,
    compile_id: CompileId | None = None,
    text: Callable[[], str] | None = None,
    **details: Any,
) -> None:
    """Report a stage. ``details`` must be JSON; ``text`` gives what tlparse shows besides, such as
    the StableHLO module.
    """
    event = Event(stage, graph, seconds, str(compile_id or ""), details)
    if log.isEnabledFor(logging.INFO):
        _log(event)
    _trace(event, compile_id, text)
    for listener in list(_listeners):
        listener(event)


def tell_capture(
    name: str, kind: str, captured: CapturedGraph, start: float, compile_id: CompileId | None
) -> None:
    """Report that AOTAutograd has made a graph, analysed since ``start``."""
    ops = Counter(
        str(node.target) for node in captured.module.graph.nodes if node.op == "call_function"
    )
    tell(
        "capture",
        name,
        time.perf_counter() - start,
        compile_id,
        text=lambda: captured.text,
        kind=kind,
        arguments=len(captured.placeholders),
        results=len(captured.results),
        mutations=len(captured.mutations),
        symbolic=captured.symbolic,
        ops=dict(ops),
    )


def tell_program(
    name: str, program: Program, arguments: str, start: float, compile_id: CompileId | None
) -> None:
    """Report that a program is there, sought since ``start``."""
    metadata = program.metadata
    details: dict[str, Any] = {
        "arguments": arguments,
        "origin": program.origin,
        "stablehlo_bytes": metadata["stablehlo_bytes"],
        "operands": len(metadata["plan"]["operands"]),
        "outputs": len(metadata["plan"]["outputs"]),
        "roads": metadata["roads"],
    }
    if _listeners:
        details["executable_bytes"] = _serialized_size(program.executable)
    tell("program", name, time.perf_counter() - start, compile_id, **details)


def _serialized_size(executable: Any) -> int | None:
    """None for a plugin that cannot serialise."""
    try:
        return len(executable.serialize())
    except RuntimeError:
        return None


def _log(event: Event) -> None:
    shown = ", ".join(f"{name} {value}" for name, value in event.details.items())
    where = f" [{event.compile_id}]" if event.compile_id else ""
    log.info("%s%s: %s, %.1f ms, %s", event.graph, where, event.stage, event.seconds * 1e3, shown)


def _trace(event: Event, compile_id: CompileId | None, text: Callable[[], str] | None) -> None:
    name = f"torchneuron_{event.stage}_{event.graph.replace(' ', '_')}"
    described = {"graph": event.graph, "seconds": event.seconds, **event.details}
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": "json"},
        payload_fn=lambda: json.dumps(described, default=str),
        expect_trace_id=False,
        compile_id=compile_id,
    )
    if text is not None:
        trace_structured(
            "artifact",
            metadata_fn=lambda: {"name": f"{name}_text", "encoding": "string"},
            payload_fn=text,
            expect_trace_id=False,
            compile_id=compile_id,
        )
