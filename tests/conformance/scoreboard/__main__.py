"""Runs PyTorch's databases on the device, compares with the CPU, and writes docs/scoreboard.md and .csv.

    python -m tests.conformance.scoreboard [--quick | --samples N] [--ops REGEX] [--mode strict|adaptive]
                                           [--jobs N] [--shard I/N] [--timeout 300] [--minutes M] [--restart]
                                           [--failed] [--one-process] [--published]

All samples, or with --quick the first of each row. The rows are run by worker processes, so that a crash or a hang
is a row like any other. Each row is kept in build/scoreboard/ when it is there: an interrupted run goes on where it
stopped, and shards that other processes have run count too; with --published also the rows of docs/scoreboard.csv.
--ops chooses among "database op dtype aspect".
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tests.conformance import workers
from tests.conformance.scoreboard.report import Comparison, published, write
from tests.conformance.scoreboard.tasks import Result, Task, all_tasks, run

_RESULTS = workers.ROOT / "build" / "scoreboard"
_QUICK = 1


def work() -> None:
    """Answer tasks with their results."""
    from torchneuron.settings import settings

    warnings.simplefilter("ignore")
    settings.fallback = "allow"

    def answer(question: tuple[list[str], int, str]) -> dict[str, object]:
        task, limit, mode = question
        settings.eager = mode
        return asdict(run(Task(*task), limit, mode))

    workers.serve(answer)


def kept(folder: Path, mode: str, limit: int) -> list[Result]:
    """The rows that earlier runs and other shards have left, the latest of each task."""
    found: dict[Task, Result] = {}
    for path in sorted(folder.glob(f"{_stem(mode, limit)}*.jsonl")):
        for line in path.read_text().splitlines():
            row = Result(**json.loads(line))
            found[row.task] = replace(row, run=str(limit or "all"))
    return list(found.values())


def take_published(folder: Path) -> None:
    """Keep the rows of docs/scoreboard.csv; any that were run here replace them."""
    files: dict[str, list[str]] = {}
    for row in published():
        name = f"{row.mode}-{row.run or 'all'}.0-published.jsonl"
        files.setdefault(name, []).append(json.dumps(asdict(row)))
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")


def best(folder: Path, mode: str, limit: int) -> list[Result]:
    """The rows of a run, and those of the first samples where it has none."""
    found = {row.task: row for row in kept(folder, mode, _QUICK)}
    return list((found | {row.task: row for row in kept(folder, mode, limit)}).values())


def first_samples(folder: Path, mode: str) -> list[Result]:
    """What became of the rows' first samples, as far as it was run or follows from a run of all."""
    found = {row.task: row for row in kept(folder, mode, 0) if _began_so(row)}
    return list((found | {row.task: row for row in kept(folder, mode, _QUICK)}).values())


def _began_so(row: Result) -> bool:
    """Whether the first of all samples fared as the row says: one that fell back may have been a later one."""
    return row.status in ("native", "no sample") or row.reason.startswith("sample 1:")


def _report(mode: str, limit: int) -> None:
    rows = best(_RESULTS, mode, limit)
    other = "adaptive" if mode == "strict" else "strict"
    first, in_other = (first_samples(_RESULTS, of) for of in (mode, other))
    write(rows, all_tasks(), mode, Comparison(other, first, in_other))


def _stem(mode: str, limit: int) -> str:
    return f"{mode}-{limit or 'all'}."


def results(
    tasks: Sequence[Task],
    limit: int,
    mode: str,
    timeout: float,
    jobs: int,
    most_bytes: int | None = workers.MOST_BYTES,
) -> Iterator[Result]:
    """A row for each task, as they come."""
    questions = [(task, limit, mode) for task in tasks]
    for (task, _, _), answer in workers.run_all(
        "tests.conformance.scoreboard", questions, timeout, jobs, most_bytes
    ):
        if isinstance(answer, workers.WorkerDied):
            yield Result(*task, mode, "error", 1, str(answer))
        else:
            yield Result(**answer)


def _with_progress(rows: Iterator[Result], total: int) -> Iterator[Result]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        # An estimate over the last rows: those of a kind take about the same time.
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, speed_estimate_period=300) as progress:
        bar = progress.add_task("", total=total)
        for row in rows:
            what = " ".join(row.task)
            if row.status in ("wrong", "error"):
                progress.console.print(f"{row.status:6} {what}: {row.reason}", markup=False)
            progress.update(bar, advance=1, description=what)
            yield row


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the first sample of each row only")
    parser.add_argument("--samples", type=int, default=0, help="the first so many samples")
    parser.add_argument("--ops", default="", help="only rows that this regex matches")
    parser.add_argument("--mode", choices=("strict", "adaptive"), default="strict")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes at a time")
    parser.add_argument("--shard", default="1/1", help="only the I-th of N parts")
    parser.add_argument(
        "--one-process", action="store_true", help="one worker to the end, however large it grows"
    )
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one row")
    parser.add_argument("--minutes", type=float, default=0, help="stop after so many minutes")
    parser.add_argument("--restart", action="store_true", help="run again what has been run")
    parser.add_argument("--failed", action="store_true", help="run again what was not right")
    parser.add_argument(
        "--published", action="store_true", help="take the rows of docs/scoreboard.csv as run"
    )
    parser.add_argument("--report", action="store_true", help="run nothing, write the report")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = _options()
    if options.work:
        work()
        return 0
    warnings.simplefilter("ignore")
    limit = _QUICK if options.quick else options.samples
    _RESULTS.mkdir(parents=True, exist_ok=True)
    if options.published:
        take_published(_RESULTS)
    if not options.report:
        _run(options, limit)
    _report(options.mode, limit)
    return 0


def _run(options: argparse.Namespace, limit: int) -> None:
    part, _, parts = options.shard.partition("/")
    tasks = all_tasks(options.ops)[int(part) - 1 :: int(parts)]
    if not options.restart:
        again = ("wrong", "error") if options.failed else ()
        rows = kept(_RESULTS, options.mode, limit)
        done = {row.task for row in rows if row.status not in again}
        tasks = [task for task in tasks if task not in done]
    path = _RESULTS / f"{_stem(options.mode, limit)}{part}-of-{parts}.jsonl"
    end = time.monotonic() + 60 * options.minutes if options.minutes else None
    jobs, most_bytes = (1, None) if options.one_process else (options.jobs, workers.MOST_BYTES)
    found = results(tasks, limit, options.mode, options.timeout, jobs, most_bytes)
    with path.open("a") as file:
        for row in _with_progress(found, len(tasks)):
            print(json.dumps(asdict(row)), file=file, flush=True)
            if end is not None and time.monotonic() > end:
                break


if __name__ == "__main__":
    sys.exit(main())
