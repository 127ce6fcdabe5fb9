"""Eager operators on the device against PyTorch's own CPU operators, in turn in one run.

    python benchmarks/eager.py --json eager.json

Groups:

    small         warm operators on 8 to 1024 elements: what one eager call costs
    large         the same operators on 1 M elements
    small strict  `small` and `large` in strict mode, reported without a limit
    large strict
    new           the first call of a signature, compiled; a fresh process with an empty disk cache
    from disk     the first call of a signature that an earlier process has compiled

Results are held until all of a round are there: the adaptive mode, our default, would never compute
what is dropped at once. In the last two groups the peer is the CPU's first call with the same shapes.
It compiles nothing, so only our times count there, and those groups stay out of the geometric mean
over all.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from _harness import (
    Case,
    Limit,
    Results,
    Work,
    add_options,
    duration,
    finish,
    paired,
    settle_of,
)

SMALL, LARGE, NEW, FROM_DISK = "small", "large", "new", "from disk"
STRICT = "strict"
SMALL_SHAPES = {8: (2, 4), 64: (8, 8), 1024: (16, 64)}
LARGE_SHAPE = (1024, 1024)
# Results of so many elements are held by the tens, not by the thousands.
MANY = 1 << 16
LIMITS = [
    Limit(SMALL, "worst", 2.0),
    Limit(SMALL, "geomean", 1.6),
    Limit(LARGE, "worst", 1.1),
    Limit(NEW, "worst_ms", 120.0, "ms"),
    Limit(FROM_DISK, "worst_ms", 10.0, "ms"),
]


class Held:
    """A work whose results are held until they are waited for, so that all of them are computed."""

    def __init__(self, work: Work, settle: Work) -> None:
        """`settle` waits for the results of `work`."""
        self._work, self._settle = work, settle
        self._results: list[Any] = []

    def __call__(self) -> None:
        """Run the work once."""
        self._results.append(self._work())

    def settle(self) -> None:
        """Wait for the results and drop them."""
        self._settle()
        self._results.clear()


class Inputs:
    """The operands of every operator for one shape, drawn on the CPU by a seed."""

    def __init__(self, shape: tuple[int, int], seed: int) -> None:
        """Draw the operands: float32 [rows, columns], row numbers, a normalisation's weights."""
        generator = torch.Generator().manual_seed(seed)
        rows, columns = shape
        self.x = torch.randn(shape, generator=generator)
        self.y = torch.randn(shape, generator=generator)
        self.target = torch.zeros(shape)
        self.rows = torch.randint(rows, (rows,), generator=generator)
        self.weight = torch.randn(columns, generator=generator)
        self.bias = torch.randn(columns, generator=generator)

    def to(self, device: str) -> Inputs:
        """Return the same operands on a device."""
        moved = Inputs.__new__(Inputs)
        moved.__dict__ = {name: tensor.to(device) for name, tensor in self.__dict__.items()}
        return moved


# What each operator is called with: calls with as little Python around them as there can be.
OPERATORS: dict[str, Callable[[Inputs], Work]] = {
    "add": lambda i: partial(torch.add, i.x, i.y),
    "mul": lambda i: partial(torch.mul, i.x, i.y),
    "relu": lambda i: partial(torch.relu, i.x),
    "sum": lambda i: partial(torch.sum, i.x),
    "layer_norm": lambda i: partial(torch.layer_norm, i.x, i.weight.shape, i.weight, i.bias),
    "softmax": lambda i: partial(torch.softmax, i.x, -1),
    "index": lambda i: partial(operator.getitem, i.x, i.rows),
    "copy": lambda i: partial(i.target.copy_, i.x),
}


def warm_cases(
    group: str, shapes: dict[int, tuple[int, int]], options: argparse.Namespace, rounds: int
) -> list[Case]:
    """Compare every operator on every shape, after checking that both give the same values.

    Small operators of the CPU run on one thread: some of them would wake a second one, which costs
    more than it brings, and much more on a busy machine.
    """
    settle = settle_of(options.device)
    cases = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if group.startswith(SMALL) else threads)
    for count, shape in shapes.items():
        on_cpu = Inputs(shape, options.seed)
        on_device = on_cpu.to(options.device)
        for name, call in OPERATORS.items():
            ours, peer = call(on_device), call(on_cpu)
            torch.testing.assert_close(ours().cpu(), peer())
            held, held_peer = Held(ours, settle), Held(peer, settle_of("cpu"))
            most = 2000 if count < MANY else 50
            case = paired(
                f"{name} {count}",
                group,
                held,
                held_peer,
                held.settle,
                rounds,
                most_loops=most,
                settle_peer=held_peer.settle,
            )
            show(case)
            cases.append(case)
    torch.set_num_threads(threads)
    return cases


def show(case: Case) -> None:
    """Tell on stderr that a case is done."""
    line = f"{case.group}: {case.name}: {duration(case.ours_s)}, cpu {duration(case.peer_s)}"
    print(line, file=sys.stderr, flush=True)


def new_shapes(index: int) -> list[tuple[int, int]]:
    """Return shapes for operator number `index` that nothing else in the process uses."""
    return [(13 + index, 7), (29, 41 + index)]


def first_calls(device: str, seed: int) -> dict[str, Any]:
    """Time the first call of every operator with new shapes, on the device and on the CPU.

    One call of every operator comes first, so that loading the client and the compiler, which a
    process does once, is not counted.
    """
    settle = settle_of(device)
    metrics = getattr(torch.get_device_module(device), "metrics", None)
    on_cpu = Inputs((2, 4), seed)
    for call in OPERATORS.values():
        for inputs in (on_cpu, on_cpu.to(device)):
            call(inputs)()
    settle()
    before = metrics() if metrics else None
    calls: dict[str, Any] = {}
    for index, (name, call) in enumerate(OPERATORS.items()):
        for shape in new_shapes(index):
            on_cpu = Inputs(shape, seed)
            on_device = on_cpu.to(device)
            settle()
            times = []
            for inputs in (on_device, on_cpu):
                work = call(inputs)
                started = time.perf_counter()
                work()
                settle()
                times.append(time.perf_counter() - started)
            calls[f"{name} {shape[0]}x{shape[1]}"] = times
    after = metrics() if metrics else None
    counted = ("programs_compiled", "cache_hits_disk")
    counts = {key: after[key] - before[key] for key in counted} if before and after else None
    return {"calls": calls, "counts": counts}


def child(options: argparse.Namespace, cache: str) -> dict[str, Any]:
    """Run `first_calls` in a process of its own with this disk cache."""
    command = [sys.executable, __file__, "--first-calls"]
    command += ["--device", options.device, "--seed", str(options.seed)]
    environment = os.environ | {"TORCHNEURON_CACHE_DIR": cache}
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    outcome: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return outcome


def first_call_cases(options: argparse.Namespace, repeats: int) -> list[Case]:
    """Compare first calls: compiled in one process, then loaded from disk in a second one."""
    runs: dict[str, list[dict[str, Any]]] = {NEW: [], FROM_DISK: []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="torchneuron-eager-") as cache:
            for group in (NEW, FROM_DISK):
                print(f"{group}: a process of first calls", file=sys.stderr, flush=True)
                runs[group].append(child(options, cache))
    for run in runs[FROM_DISK]:
        counts = run["counts"]
        if counts is not None and counts["programs_compiled"]:
            raise RuntimeError(f"the second process did not find its programs on disk: {counts}")
    cases = []
    for group, outcomes in runs.items():
        for name in outcomes[0]["calls"]:
            ours = statistics.median(outcome["calls"][name][0] for outcome in outcomes)
            peer = statistics.median(outcome["calls"][name][1] for outcome in outcomes)
            details = {"processes": repeats, "counts": outcomes[0]["counts"]}
            cases.append(Case(name, group, ours, peer, ours / peer, details))
    return cases


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--groups",
        default="small,large,strict,new",
        help="new and strict stand for both of their two",
    )
    parser.add_argument("--first-calls", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_calls:
        print(json.dumps(first_calls(options.device, options.seed)))
        return 0

    groups = options.groups.split(",")
    small = {64: SMALL_SHAPES[64]} if options.quick else SMALL_SHAPES
    shapes = {SMALL: small, LARGE: {LARGE_SHAPE[0] * LARGE_SHAPE[1]: LARGE_SHAPE}}
    rounds = 7 if options.quick else 25
    cases: list[Case] = []
    for group in (SMALL, LARGE):
        if group in groups:
            cases += warm_cases(group, shapes[group], options, rounds)
    if STRICT in groups and options.device == "neuron":
        with torch.neuron.eager_mode("strict"):
            for group in (SMALL, LARGE):
                cases += warm_cases(f"{group} {STRICT}", shapes[group], options, rounds)
    if NEW in groups:
        cases += first_call_cases(options, repeats=1 if options.quick else 3)
    measured = {case.group for case in cases}
    limits = [limit for limit in LIMITS if limit.group in measured]
    return finish(Results("eager", options.device, cases, (SMALL, LARGE), limits), options)


if __name__ == "__main__":
    raise SystemExit(main())
