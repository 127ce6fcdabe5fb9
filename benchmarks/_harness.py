"""Paired timing of two ways to do the same work, and one form for the results.

The two ways run in turn, round by round, so that a slow moment of the machine falls on both. A
case's times are the medians over the rounds; its ratio is the median of the rounds' ratios, which
is steadier than the ratio of the medians when the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Work = Callable[[], Any]

# Between the two sides: long enough for the threads of either to stop spinning for more work, which
# would else cost the other side a core (OpenMP's spin for some milliseconds).
QUIET_SECONDS = 0.02


@dataclass
class Case:
    """One comparison: seconds per operation of ours and of the peer, and their ratio."""

    name: str
    group: str
    ours_s: float
    peer_s: float
    ratio: float
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limit:
    """A bound on one figure of a group: `figure` names a method of `Group`."""

    group: str
    figure: str
    at_most: float
    unit: str = "x"


@dataclass
class Group:
    """The cases of one group and the figures that limits are set on."""

    cases: list[Case]

    def geomean(self) -> float:
        """Return the geometric mean of the ratios."""
        return geometric_mean([case.ratio for case in self.cases])

    def worst(self) -> float:
        """Return the largest ratio."""
        return max(case.ratio for case in self.cases)

    def median_ms(self) -> float:
        """Return the median of our times in milliseconds."""
        return 1e3 * statistics.median(case.ours_s for case in self.cases)

    def worst_ms(self) -> float:
        """Return the largest of our times in milliseconds."""
        return 1e3 * max(case.ours_s for case in self.cases)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers; NaN of none."""
    if not values:
        return math.nan
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep Python's garbage collector from running inside a timing."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def seconds_per_operation(work: Work, settle: Work, loops: int) -> float:
    """Issue `work` `loops` times, wait for all of it, and return the time of one."""
    repeat = range(loops)
    started = time.perf_counter()
    for _ in repeat:
        work()
    settle()
    return (time.perf_counter() - started) / loops


def choose_loops(work: Work, settle: Work, seconds: float, most: int) -> int:
    """Return how many operations fill about `seconds`, at least 2."""
    once = seconds_per_operation(work, settle, 3)
    return max(2, min(most, int(seconds / max(once, 1e-9))))


def paired(
    name: str,
    group: str,
    ours: Work,
    peer: Work,
    settle: Work,
    rounds: int,
    round_seconds: float = 0.02,
    most_loops: int = 2000,
    settle_peer: Work | None = None,
) -> Case:
    """Time `ours` and `peer` in turn; `settle` waits until ours has finished all it was given.

    So does `settle_peer`; a peer without works on the calling thread.
    """
    wait_for_peer = settle_peer or _nothing
    for work in (ours, peer):
        for _ in range(3):
            work()
    settle()
    loops = choose_loops(peer, wait_for_peer, round_seconds, most_loops)
    our_times, peer_times = [], []
    with collector_off():
        for index in range(rounds):
            # Who goes first changes, so that neither always finds the caches warm.
            sides = [(ours, settle, our_times), (peer, wait_for_peer, peer_times)]
            for work, wait, times in sides if index % 2 else sides[::-1]:
                time.sleep(QUIET_SECONDS)
                seconds_per_operation(work, wait, loops)
                times.append(seconds_per_operation(work, wait, loops))
    ratios = [our / their for our, their in zip(our_times, peer_times, strict=True)]
    return Case(
        name,
        group,
        statistics.median(our_times),
        statistics.median(peer_times),
        statistics.median(ratios),
        {"loops": loops, "rounds": rounds},
    )


def _nothing() -> None:
    """Wait for nothing: the CPU, the peer, works on the calling thread."""


def settle_of(device: str) -> Work:
    """Return what waits until `device` has finished all it was given."""
    return _nothing if torch.device(device).type == "cpu" else torch.accelerator.synchronize


@dataclass
class Results:
    """All cases of a benchmark, its limits, and where it ran.

    `headline` names the groups whose ratios make the geometric mean over all: those in which both
    sides do the same work.
    """

    benchmark: str
    device: str
    cases: list[Case]
    headline: Sequence[str]
    limits: list[Limit] = field(default_factory=list)
    peer: str = "cpu"

    def group(self, name: str) -> Group:
        """Return the cases of one group."""
        return Group([case for case in self.cases if case.group == name])

    def checks(self) -> list[tuple[Limit, float, bool]]:
        """Return every limit with the figure measured and whether it is kept."""
        found = []
        for limit in self.limits:
            measured = float(getattr(self.group(limit.group), limit.figure)())
            found.append((limit, measured, measured <= limit.at_most))
        return found

    def kept(self) -> bool:
        """Say whether every limit is kept."""
        return all(kept for _, _, kept in self.checks())

    def as_json(self) -> dict[str, Any]:
        """Return cases with ours, the peer, their times and the ratio, and the geometric means."""
        groups = list(dict.fromkeys(case.group for case in self.cases))
        return {
            "benchmark": self.benchmark,
            "ours": self.device,
            "peer": self.peer,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "threads": torch.get_num_threads(),
            "cases": [
                {
                    "name": case.name,
                    "group": case.group,
                    "ours": self.device,
                    "peer": self.peer,
                    "ours_s": case.ours_s,
                    "peer_s": case.peer_s,
                    "ratio": case.ratio,
                }
                | case.details
                for case in self.cases
            ],
            "geometric_mean": geometric_mean(
                [case.ratio for case in self.cases if case.group in self.headline]
            ),
            "geometric_means": {name: self.group(name).geomean() for name in groups},
            "limits": [
                {
                    "group": limit.group,
                    "figure": limit.figure,
                    "at_most": limit.at_most,
                    "measured": measured,
                    "kept": kept,
                }
                for limit, measured, kept in self.checks()
            ],
        }

    def table(self) -> str:
        """Return the results as text."""
        width = max(len(case.name) for case in self.cases)
        lines = []
        for name in dict.fromkeys(case.group for case in self.cases):
            lines.append(f"\n{name}")
            lines.append(f"  {'case':<{width}}  {self.device:>10}  {self.peer:>10}  {'ratio':>7}")
            lines += [
                f"  {case.name:<{width}}  {duration(case.ours_s):>10}  "
                f"{duration(case.peer_s):>10}  {case.ratio:>6.2f}x"
                for case in self.group(name).cases
            ]
            lines.append(
                f"  {'geometric mean':<{width}}  {'':>24}{self.group(name).geomean():>6.2f}x"
            )
        if self.limits:
            lines.append("\nlimits")
        for limit, measured, kept in self.checks():
            mark = "kept" if kept else "MISSED"
            what = f"{limit.group}: {limit.figure.replace('_ms', '')}"
            bound = f"at most {limit.at_most:g} {limit.unit}"
            lines.append(f"  {what:<40} {measured:>8.2f} {limit.unit:<3} {bound:<18} {mark}")
        return "\n".join(lines)


def duration(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every benchmark has."""
    parser.add_argument("--device", default="neuron", help="the device compared with the CPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and cases")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a limit is missed")
    parser.add_argument("--seed", type=int, default=0)


def finish(results: Results, options: argparse.Namespace) -> int:
    """Print the table, write the JSON file, and return the exit code."""
    print(results.table())
    if options.json is not None:
        options.json.write_text(json.dumps(results.as_json(), indent=2) + "\n")
    if options.check and not results.kept():
        print("a limit was missed", file=sys.stderr)
        return 1
    return 0
