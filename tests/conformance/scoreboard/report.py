"""Writes the scoreboard: docs/scoreboard.csv has every row, docs/scoreboard.md the totals beside the bars."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields

import torch

from tests.conformance import compiled
from tests.conformance.scoreboard.tasks import DTYPES, NO_DTYPE, Result, Task
from tests.conformance.sweep import Aspect
from tests.conformance.workers import ROOT

_RIGHT = ("native", "fallback")
_MOST_SHOWN = 60
_LEAST_RUN = 0.1


@dataclass(frozen=True)
class Bar:
    """What is required of the rows of one line, in percent; None where nothing is."""

    correct: float | None = None
    native: float | None = None


_FORWARD = {
    "float32": Bar(99, 93),
    "bfloat16": Bar(98, 92),
    "float16": Bar(98, 92),
    "int64": Bar(98, 90),
    "int32": Bar(98, 90),
    "bool": Bar(98, 90),
    "complex64": Bar(95, 75),
    "float64": Bar(98),
}
_ASPECTS = {
    Aspect.BACKWARD: Bar(97),
    Aspect.FORWARD_AD: Bar(95),
    Aspect.IN_PLACE: Bar(98),
    Aspect.OUT: Bar(98),
    Aspect.NONCONTIGUOUS: Bar(),
}
_DATABASES = {
    "foreach": Bar(),
    "module_db": Bar(100, 97),
    "optim_db": Bar(100, 97),
    "hop_db": Bar(100),
}
_COMPILED = 96


@dataclass(frozen=True)
class Comparison:
    """The first samples in this mode and in the other."""

    other: str
    here: Sequence[Result]
    there: Sequence[Result]


def published() -> list[Result]:
    """The rows of docs/scoreboard.csv, of all modes."""
    with (ROOT / "docs" / "scoreboard.csv").open(newline="") as file:
        return [Result(**{**row, "samples": int(row["samples"])}) for row in csv.DictReader(file)]  # type: ignore[arg-type]


def write(rows: Sequence[Result], tasks: Sequence[Task], mode: str, comparison: Comparison) -> None:
    """Write both files from the rows there are; ``tasks`` are those there should be."""
    wanted = set(tasks)
    rows = sorted((row for row in rows if row.task in wanted), key=lambda row: row.task)
    with (ROOT / "docs" / "scoreboard.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Result)], lineterminator="\n")
        writer.writeheader()
        there = (row for row in comparison.there if row.task in wanted)
        writer.writerows(asdict(row) for row in (*rows, *sorted(there, key=lambda row: row.task)))
    text = "\n".join(_page(rows, tasks, mode, comparison)) + "\n"
    (ROOT / "docs" / "scoreboard.md").write_text(text)


def _page(
    rows: Sequence[Result], tasks: Sequence[Task], mode: str, comparison: Comparison
) -> Iterator[str]:
    runs = Counter(row.run for row in rows if row.status != "no sample")
    whole = runs.pop("all", 0)
    none = len(rows) - whole - runs.total()
    samples = sum(row.samples for row in rows if row.run == "all")
    yield "# Scoreboard"
    yield ""
    yield "PyTorch's own databases of operators, modules and optimizers, run on the device and compared with the CPU."
    yield "Every row is in [scoreboard.csv](scoreboard.csv). `make scoreboard` writes both (see docs/conformance.md)."
    yield ""
    yield f"* PyTorch {torch.__version__.partition('+')[0]}, the embedded XLA:CPU plugin, mode {mode}."
    yield f"* {len(rows)} of {len(tasks)} rows have been run. Of these the CPU can run no sample of"
    yield f"  {none}; of {whole} all samples were run, {samples} in all; of {runs.total()} the first ones."
    yield f"  The column `run` of the CSV says which; its rows in mode {comparison.other} are all of first samples."
    yield "  A line of which less than a tenth has been run gives no share."
    yield "* native: all of it ran on the device, by the backend's own counters. Correct: native or by way of the CPU."
    yield "  Neither: another result than the CPU's by the OpInfo's tolerances, or an error, a crash or a hang."
    yield "* Random ops: shape, dtype, and the same numbers with the same seed. Ops that differ from the CPU by design"
    yield "  are in tests/conformance/differences.py, each with its reason and a check in place of equality."
    yield ""
    yield "## op_db, forward"
    yield from _table(
        (of, _of(rows, tasks, "op_db", Aspect.FORWARD, of), _FORWARD[of]) for of in DTYPES
    )
    for aspect, bar in _ASPECTS.items():
        yield ""
        yield f"## op_db, {aspect}"
        yield from _table((of, _of(rows, tasks, "op_db", aspect, of), bar) for of in DTYPES)
    yield ""
    yield "## Error inputs: the exception's type is the one that PyTorch's database asks for"
    errors = _of(rows, tasks, "op_db", Aspect.ERRORS, NO_DTYPE)
    yield from _table([("all", errors, Bar(95))])
    yield ""
    yield "## Other databases, all their rows"
    yield from _table((name, _of(rows, tasks, name), bar) for name, bar in _DATABASES.items())
    yield ""
    yield from _compiled()
    yield ""
    yield from _compared(mode, comparison)
    yield ""
    yield from _kinds(rows)


def _of(
    rows: Sequence[Result], tasks: Sequence[Task], database: str, *rest: str
) -> tuple[list[Result], int]:
    """The rows of a database, and of an aspect and a dtype if given, and how many there should be."""

    def fits(task: Task) -> bool:
        return task.database == database and (not rest or (task.aspect, task.dtype) == rest)

    return [row for row in rows if fits(row.task)], sum(map(fits, tasks))


def _table(lines: "Iterator[Line] | Sequence[Line]") -> Iterator[str]:
    yield ""
    yield "| | rows run | of | with all samples | correct | required | native | required | wrong | error |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, (rows, total), bar in lines:
        counts = Counter(row.status for row in rows)
        count = len(rows) - counts["no sample"]
        # What the CPU cannot run is no row.
        of = total - counts["no sample"]
        if not of:
            continue
        # A few rows say nothing of all.
        whole = count if count >= _LEAST_RUN * of else 0
        all_samples = sum(row.run == "all" for row in rows if row.status != "no sample")
        correct = _share(counts["native"] + counts["fallback"], whole)
        native = _share(counts["native"], whole)
        yield (
            f"| {name} | {count} | {of} | {all_samples} | {correct} | {_percent(bar.correct)} | {native} | "
            f"{_percent(bar.native)} | {counts['wrong']} | {counts['error']} |"
        )


Line = tuple[str, tuple[list[Result], int], Bar]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _percent(bar: float | None) -> str:
    return "" if bar is None else f"{bar:g} %"


def _compiled() -> Iterator[str]:
    counts = Counter(entry.partition(":")[0] for entry in compiled.read().values())
    count = counts.total() - counts["eager"]
    yield "## op_db under torch.compile(fullgraph=True), float32, forward and backward"
    yield ""
    yield (
        f"{counts['ok']} of the {count} ops that pass eagerly ({_share(counts['ok'], count)}; required "
        f"{_COMPILED} %), first samples. By `make conformance`, from tests/conformance/compiled.json."
    )


def _compared(mode: str, comparison: Comparison) -> Iterator[str]:
    here = {row.task: row for row in comparison.here}
    both = [(here[row.task], row) for row in comparison.there if row.task in here]
    other = [pair for pair in both if pair[0].status != pair[1].status]
    yield f"## {comparison.other.capitalize()} mode: the same rows"
    yield ""
    yield (
        f"Of {len(both)} rows whose first sample was run in both modes, {len(both) - len(other)} "
        "came out the same."
    )
    if other:
        yield ""
    for row, there in other[:_MOST_SHOWN]:
        yield (
            f"* {' '.join(row.task)}: {mode} {row.status} `{_short(row)}`, "
            f"{comparison.other} {there.status} `{_short(there)}`"
        )


def _short(row: Result) -> str:
    return row.reason.replace("|", "/").replace("`", "'")[:160]


def _kinds(rows: Sequence[Result]) -> Iterator[str]:
    bad = [row for row in rows if row.status in ("wrong", "error")]
    yield f"## The {len(bad)} rows that are wrong or an error, by op"
    yield ""
    where = Counter((row.database, row.op) for row in bad)
    for (database, op), count in sorted(where.items(), key=lambda item: (-item[1], item[0]))[
        :_MOST_SHOWN
    ]:
        first = next(row for row in bad if (row.database, row.op) == (database, op))
        yield f"* {op} ({database}), {count}: {first.dtype} {first.aspect}: `{_short(first)}`"
    if len(where) > _MOST_SHOWN:
        yield f"* and {len(where) - _MOST_SHOWN} more ops, in the CSV"
