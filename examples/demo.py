"""Run the four example jobs and show what each cost.

    python examples/demo.py --device neuron --json demo.json

The exit code is 1 when a job misses its figures, and 0 otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from _jobs import ConsoleProgress, Counters, JobResult
from _jobs import Progress as ReportProgress
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

# Letter of a job -> the module that runs it.
JOBS = {
    "a": "digits_cnn",
    "b": "char_gpt",
    "c": "sentence_embeddings",
    "d": "smollm2_chat",
}
NO_COUNT = "-"


@dataclass
class Row:
    """One line of the closing table: a job's result and the device's counters over the job."""

    result: JobResult
    counters: dict[str, Any] | None
    error: str | None = None

    def counts(self) -> tuple[str, str, str, str]:
        """Return compiled programs, cache hits, native executions and fallbacks as text."""
        if self.counters is None:
            return NO_COUNT, NO_COUNT, NO_COUNT, NO_COUNT
        fallbacks = self.counters["fallbacks"]
        hits = f"{self.counters['cache_hits_memory']:,} / {self.counters['cache_hits_disk']:,}"
        names = ", ".join(f"{name} {count:,}" for name, count in sorted(fallbacks.items()))
        return (
            f"{self.counters['programs_compiled']:,}",
            hits,
            f"{self.counters['executions']:,}",
            names or "none",
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything known about the job."""
        return asdict(self.result) | {"counters": self.counters, "error": self.error}


def follow(display: Progress, bar: TaskID) -> ReportProgress:
    """Return what moves a job's bar; where no bar can be drawn, it prints a line now and then."""
    lines = None if display.console.is_terminal else ConsoleProgress()

    def report(done: float, what: str) -> None:
        display.update(bar, completed=done, what=what)
        if lines is not None:
            lines(done, what)

    return report


def run_job(letter: str, device: str, display: Progress) -> Row:
    """Run one job under a bar of its own; a job that raises is a failed row, not an end."""
    module_name = JOBS[letter]
    bar = display.add_task(f"({letter}) {module_name}", total=1.0, what="starting")
    counters = Counters(torch.device(device))
    error = None
    try:
        module = importlib.import_module(module_name)
        display.update(bar, description=f"({letter}) {module.TITLE}")
        result: JobResult = module.run(device, progress=follow(display, bar))
    except (Exception, SystemExit) as problem:
        error = traceback.format_exc()
        result = JobResult(letter, module_name, False, f"{type(problem).__name__}: {problem}", 0.0)
        result.seconds = display.tasks[bar].elapsed or 0.0
    mark = "[green]done[/]" if result.passed else "[red]failed[/]"
    display.update(bar, completed=1.0, what=mark)
    display.stop_task(bar)
    return Row(result, counters.read(), error)


def closing_table(rows: list[Row], device: str) -> Table:
    """Return the table of all jobs."""
    table = Table(title=f"torchneuron demo on {device}", title_justify="left", pad_edge=False)
    table.add_column("Job")
    table.add_column("Result", ratio=1)
    table.add_column("Time", justify="right")
    table.add_column("Programs\ncompiled", justify="right")
    table.add_column("Cache hits\nmemory / disk", justify="right")
    table.add_column("Native\nexecutions", justify="right")
    table.add_column("Fallbacks", justify="right")
    for row in rows:
        color = "green" if row.result.passed else "red"
        table.add_row(
            f"({row.result.job}) {row.result.title}",
            f"[{color}]{'✓' if row.result.passed else '✗'}[/] {row.result.result}",
            f"{row.result.seconds:.1f} s",
            *row.counts(),
        )
    return table


def report(rows: list[Row], device: str) -> dict[str, Any]:
    """Return the demo's outcome as JSON-ready values."""
    return {
        "device": device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "passed": all(row.result.passed for row in rows),
        "seconds": sum(row.result.seconds for row in rows),
        "jobs": [row.as_json() for row in rows],
    }


def parse_jobs(text: str) -> list[str]:
    """Turn `a,c` into letters; raises ArgumentTypeError for letters that name no job."""
    letters = [letter.strip() for letter in text.split(",") if letter.strip()]
    unknown = sorted(set(letters) - set(JOBS))
    if unknown or not letters:
        raise argparse.ArgumentTypeError(f"choose from {', '.join(JOBS)}; got {text!r}")
    return letters


def run(device: str, letters: list[str], console: Console) -> list[Row]:
    """Run the jobs in turn under one progress display."""
    columns = (
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=console) as display:
        rows = []
        for letter in letters:
            if not console.is_terminal:
                console.print(f"running job ({letter}) {JOBS[letter]}")
            rows.append(run_job(letter, device, display))
    return rows


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--jobs", type=parse_jobs, default=list(JOBS), metavar="a,b,c,d")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args()

    console = Console(width=None if sys.stdout.isatty() else 150)
    rows = run(options.device, options.jobs, console)
    console.print()
    console.print(closing_table(rows, options.device))
    for row in rows:
        if row.error is not None:
            console.print(f"\njob ({row.result.job}) raised:\n{row.error}", markup=False)
    outcome = report(rows, options.device)
    if options.json is not None:
        options.json.write_text(json.dumps(outcome, indent=2) + "\n")
    return 0 if outcome["passed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
