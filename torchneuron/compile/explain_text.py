"""An ``Explanation`` as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchneuron.compile.explain import Explanation

_OPS_SHOWN = 8
_ROADS = ("emitter", "decomposition", "torch-mlir")


def text(explanation: Explanation) -> str:
    """The sections that have something in them."""
    sections = [
        _summary(explanation),
        _section("GRAPHS", _graphs(explanation)),
        _section("GRAPH BREAKS", _breaks(explanation)),
        _section("CUT FOR OPS THAT RUN BY THEMSELVES", _cuts(explanation)),
        _section("OPS BY ROAD", _roads(explanation)),
        _section("RECOMPILES", _recompiles(explanation)),
        _section("PROGRAMS", _programs(explanation)),
        _section("FAILED", _failures(explanation)),
        _section("ON THE CPU OR OP BY OP", _fallbacks(explanation)),
    ]
    return "\n\n".join(section for section in sections if section)


def _summary(explanation: Explanation) -> str:
    if not explanation.graphs:
        return (
            "No graph was compiled with backend 'neuron'. Use torch.compile(..., "
            "backend='neuron') or torch.compiler.set_default_backend('neuron')."
        )
    compiled = [program for program in explanation.programs if program.origin == "compiled"]
    lowering = sum(program.lowering_seconds for program in explanation.programs)
    compiling = sum(program.seconds for program in compiled)
    tracing = sum(frame.seconds for frame in explanation.frames)
    counts = [
        _count(len(explanation.frames), "frame"),
        _count(len(explanation.graphs), "graph"),
        _count(len(explanation.breaks), "graph break"),
        _count(len(explanation.recompiles), "recompile"),
        f"{_count(len(explanation.programs), 'program')} ({len(compiled)} compiled)",
    ]
    return (
        f"{', '.join(counts)}\n{_time(explanation.seconds)} in all: {_time(tracing)} tracing, "
        f"{_time(lowering)} lowering, {_time(compiling)} compiling"
    )


def _graphs(explanation: Explanation) -> Iterator[str]:
    frames = {frame.compile_id: frame for frame in explanation.frames}
    rows = [("NAME", "FUNCTION", "OPS", "IN", "OUT", "WRITES", "SHAPES", "AT")]
    for graph in explanation.graphs:
        frame = frames.get(graph.compile_id)
        ops = sum(count for found in graph.roads.values() for count in found.values())
        rows.append(
            (
                graph.name,
                frame.function if frame else "",
                str(ops),
                str(graph.arguments),
                str(graph.results),
                str(graph.mutations),
                "symbolic" if graph.symbolic else "fixed",
                frame.line if frame else "",
            )
        )
    return iter(_table(rows) if len(rows) > 1 else ())


def _breaks(explanation: Explanation) -> Iterator[str]:
    for found in explanation.breaks:
        yield f"{found.line}  {found.code}".rstrip()
        yield from (f"    {line}" for line in _essence(found.reason))


def _cuts(explanation: Explanation) -> Iterator[str]:
    rows = [("OP", "IN", "AT", "BECAUSE")]
    rows += [(cut.op, cut.graph, cut.line, cut.reason) for cut in explanation.cuts]
    return iter(_table(rows) if len(rows) > 1 else ())


def _essence(reason: str) -> Iterator[str]:
    """TorchDynamo's text without its developer's part and hints."""
    for line in reason.splitlines():
        if line.strip().startswith(("Hint:", "Developer debug context:", "For more details")):
            return
        if line.strip():
            yield line.strip()


def _roads(explanation: Explanation) -> Iterator[str]:
    counts: dict[str, Counter[str]] = {}
    for graph in explanation.graphs:
        for road, ops in graph.roads.items():
            counts.setdefault(road, Counter()).update(ops)
    rows = []
    for road in sorted(counts, key=_ROADS.index):
        shown = [f"{op} {count}" for op, count in counts[road].most_common(_OPS_SHOWN)]
        more = len(counts[road]) - len(shown)
        rows.append(
            (
                road,
                str(sum(counts[road].values())),
                ", ".join(shown) + (f" and {more} more" if more else ""),
            )
        )
    return iter(_table(rows))


def _recompiles(explanation: Explanation) -> Iterator[str]:
    for frame in explanation.recompiles:
        yield f"{frame.function} [{frame.compile_id}]  {frame.line}"
        yield from (f"    {line}" for line in _guards(frame.recompile_reason))


def _guards(reason: str) -> Iterator[str]:
    """TorchDynamo's text without the stack behind it and the source line behind a guard."""
    for line in reason.splitlines():
        if line.strip().startswith("User stack trace:"):
            return
        if guard := line.split("  # ")[0].strip():
            yield guard


def _programs(explanation: Explanation) -> Iterator[str]:
    rows = [
        (
            "GRAPH",
            "FROM",
            "LOWER",
            "COMPILE",
            "STABLEHLO",
            "EXECUTABLE",
            "OPERANDS",
            "OUT",
            "BECAUSE",
        )
    ]
    for program in explanation.programs:
        rows.append(
            (
                program.graph,
                program.origin,
                _time(program.lowering_seconds) if program.lowering_seconds else "",
                _time(program.seconds),
                _size(program.stablehlo_bytes),
                "" if program.executable_bytes is None else _size(program.executable_bytes),
                str(program.operands),
                str(program.outputs),
                program.reason,
            )
        )
    return iter(_table(rows) if len(rows) > 1 else ())


def _failures(explanation: Explanation) -> Iterator[str]:
    yield from (f"{graph.name}: {graph.refused}" for graph in explanation.graphs if graph.refused)
    yield from (
        f"{frame.function}: {frame.failure}" for frame in explanation.frames if frame.failure
    )


def _fallbacks(explanation: Explanation) -> Iterator[str]:
    return iter(_table([(str(count), op) for op, count in explanation.fallbacks.items()]))


def _section(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"{title}\n{body}" if body else ""


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def _size(count: int) -> str:
    return f"{count / 1024:.1f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MiB"
