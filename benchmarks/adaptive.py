"""Adaptive eager against the same script compiled, strict and on PyTorch's CPU, in turn in one run.

    python benchmarks/adaptive.py --json adaptive.json

The scripts are unchanged training loops: a small GPT, a CNN, an LSTM, an MLP with many tiny
parameters, and a reinforcement-learning loop that reads a value at every step. Groups:

    compiled   adaptive against `torch.compile(backend="neuron")`
    strict     adaptive against one program per operation; the launch-bound scripts
    cpu        adaptive against PyTorch's CPU operators; the launch-bound scripts
    warm-up    the first steps in adaptive mode, until well after programs have been made of them,
               against strict's, in processes of their own
    noise      the same figures of strict against strict: what they cannot tell apart here
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import _compile_torch as models
import torch
from _harness import Case, Limit, Results, Work, add_options, finish, paired, settle_of
from torch import nn
from torch.nn import functional as F

from torchneuron import _C

COMPILED, STRICT, CPU, WARM_UP, NOISE = "compiled", "strict", "cpu", "warm-up", "noise"
LIMITS = [
    Limit(COMPILED, "geomean", 1 / 0.90),
    Limit(COMPILED, "worst", 1 / 0.75),
    Limit(STRICT, "geomean", 1 / 1.5),
    Limit(CPU, "geomean", 1.0),
    Limit(WARM_UP, "worst", 1.10),
]
# Until after a program has been made of each of the scripts' steps; compared so many at a time.
WARM_UP_STEPS, BLOCK = 1600, 40

Step = Callable[[], Any]
Make = Callable[[str, models.Compile, int], Step]


def uncompiled(function: Any) -> Any:
    """What runs eagerly."""
    return function


def training(
    model: nn.Module,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    device: str,
    compile: models.Compile,
) -> Step:
    """A step of Adam; every tenth reads the loss, as a script that logs does."""
    model = model.to(device)
    inputs, targets = inputs.to(device), targets.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    forward, update = compile(loss_of), compile(optimizer.step)
    steps = 0

    def step() -> torch.Tensor:
        nonlocal steps
        steps += 1
        optimizer.zero_grad()
        loss = forward(inputs, targets)
        loss.backward()
        update()
        if steps % 10 == 0:
            loss.item()
        return loss.detach()

    return step


def mlp(device: str, compile: models.Compile, seed: int) -> Step:
    """Sixteen layers of width 32: almost all launching."""
    torch.manual_seed(seed)
    layers = [layer for _ in range(16) for layer in (nn.Linear(32, 32), nn.ReLU())]
    inputs, targets = torch.randn(16, 32), torch.randint(10, (16,))
    return training(nn.Sequential(*layers, nn.Linear(32, 10)), inputs, targets, device, compile)


class Recurrent(nn.Module):
    """An LSTM over a sequence, its last output to classes."""

    def __init__(self) -> None:
        """Width 64, 10 classes."""
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, length, 32) -> (batch, 10)."""
        return self.head(self.lstm(x)[0][:, -1])


def lstm(device: str, compile: models.Compile, seed: int) -> Step:
    """A training step of the LSTM."""
    torch.manual_seed(seed)
    inputs, targets = torch.randn(16, 20, 32), torch.randint(10, (16,))
    return training(Recurrent(), inputs, targets, device, compile)


def reinforcement(device: str, compile: models.Compile, seed: int) -> Step:
    """REINFORCE on a walk along a line: each step reads the action that the policy drew."""
    torch.manual_seed(seed)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

    def choose(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_p = policy(state).log_softmax(-1)
        # The draw is the same for every device and mode.
        action = (log_p[0].exp() > 0.5).to(torch.int64)
        return action, log_p.gather(0, action.view(1))

    act, update = compile(choose), compile(optimizer.step)

    def step() -> float:
        position, log_ps = 0.0, []
        for time_ in range(8):
            state = torch.tensor([position, time_ / 8, 1.0, position**2]).to(device)
            action, log_p = act(state)
            log_ps.append(log_p)
            position += 0.25 if action.item() else -0.25
        loss = -torch.cat(log_ps).sum() * position
        optimizer.zero_grad()
        loss.backward()
        update()
        return position

    return step


SCRIPTS: dict[str, Make] = {
    "GPT": models.gpt_step,
    "CNN": models.cnn_step,
    "LSTM": lstm,
    "tiny MLP": mlp,
    "reinforcement": reinforcement,
}
LAUNCH_BOUND = ("LSTM", "tiny MLP", "reinforcement")


def in_mode(mode: str, work: Work) -> Work:
    """`work` in an eager mode; changing the mode costs nothing."""

    def run() -> Any:
        _C.set_eager_mode(mode)
        return work()

    return run


def learned(step: Step, device: str) -> Work:
    """`step` in adaptive mode, run until its windows have their programs."""
    run = in_mode("adaptive", step)
    for _ in range(4):
        for _ in range(40):
            run()
        settle_of(device)()
        _C.wait_for_windows()
    return run


def compare(options: argparse.Namespace) -> list[Case]:
    """Every script in its four forms."""
    device, settle, cases = options.device, settle_of(options.device), []
    rounds = 3 if options.quick else 9
    compiled = partial(torch.compile, backend="neuron")
    for name, make in SCRIPTS.items():
        ours = learned(make(device, uncompiled, options.seed), device)
        peers = {COMPILED: in_mode("strict", make(device, compiled, options.seed))}
        if name in LAUNCH_BOUND:
            peers[STRICT] = in_mode("strict", make(device, uncompiled, options.seed))
            peers[CPU] = make("cpu", uncompiled, options.seed)
        for group, peer in peers.items():
            for _ in range(12):
                peer()
            wait = None if group == CPU else settle
            cases.append(paired(name, group, ours, peer, settle, rounds, 0.3, settle_peer=wait))
    return cases


def first_steps(name: str, seed: int, mode: str) -> dict[str, Any]:
    """Seconds of each of the first steps of a script in this process, after one that loads, and the
    step by which a program had run instead of operations (0: none had).
    """
    _C.set_eager_mode(mode)
    step, settle = SCRIPTS[name]("neuron", uncompiled, seed), settle_of("neuron")
    step()
    seconds: list[float] = []
    fused_by = 0
    for _ in range(WARM_UP_STEPS):
        started = time.perf_counter()
        step()
        settle()
        seconds.append(time.perf_counter() - started)
        if not fused_by and len(seconds) % BLOCK == 0 and torch.neuron.metrics()["windows_run"]:
            fused_by = len(seconds)
    return {"seconds": seconds, "fused_by": fused_by}


def warm_up(options: argparse.Namespace) -> list[Case]:
    """The first steps of the launch-bound scripts, each mode in processes of its own, in turn.

    A process finds the programs of the operations on disk, and none of windows. Strict mode runs
    twice, so that the figures also come of what does not differ.
    """
    cases = []
    for name in LAUNCH_BOUND[1:2] if options.quick else LAUNCH_BOUND:
        runs: dict[str, list[list[float]]] = {"adaptive": [], "strict": [], "strict again": []}
        fused_by = []
        with tempfile.TemporaryDirectory() as known:
            _in_process(name, options.seed, "strict", known)
            for turn in range(3 if options.quick else 5):
                order = list(runs)[turn % 3 :] + list(runs)[: turn % 3]
                for mode in order:
                    with tempfile.TemporaryDirectory() as cache:
                        shutil.copytree(known, cache, dirs_exist_ok=True)
                        mode_ = mode.removesuffix(" again")
                        run = _in_process(name, options.seed, mode_, cache)
                        runs[mode].append(run["seconds"])
                        fused_by += [run["fused_by"]] if mode == "adaptive" else []
        ours = _compared(name, WARM_UP, runs["adaptive"], runs["strict"])
        cases += [replace(case, details=case.details | {"fused_by": fused_by}) for case in ours]
        cases += _compared(name, NOISE, runs["strict again"], runs["strict"])
    return sorted(cases, key=lambda case: case.group != WARM_UP)


def _compared(
    name: str, group: str, ours: list[list[float]], peer: list[list[float]]
) -> list[Case]:
    """Three figures, since steps have chance in them and no two runs load a program at the same one:

    the block of steps that is slowest beside the peer's, by the median over steps and runs; the
    step that one in twenty is slower than, and the slowest one of all, each by the median over runs.
    """
    mine_by_block, theirs_by_block = _blocks(ours), _blocks(peer)
    ratios = [a / b for a, b in zip(mine_by_block, theirs_by_block, strict=True)]
    worst = max(range(len(ratios)), key=ratios.__getitem__)
    found = [
        Case(
            f"{name}, worst block",
            group,
            mine_by_block[worst],
            theirs_by_block[worst],
            ratios[worst],
            {"first_step": 1 + worst * BLOCK, "steps": BLOCK, "runs": len(ours)},
        )
    ]
    for title, rank in (("p95", WARM_UP_STEPS // 20), ("slowest", 0)):
        mine, theirs = _ranked(ours, rank), _ranked(peer, rank)
        found.append(Case(f"{name}, {title}", group, mine, theirs, mine / theirs))
    return found


def _blocks(runs: list[list[float]]) -> list[float]:
    """The median of each block of steps over all runs."""
    return [
        statistics.median(second for run in runs for second in run[begin : begin + BLOCK])
        for begin in range(0, WARM_UP_STEPS, BLOCK)
    ]


def _ranked(runs: list[list[float]], rank: int) -> float:
    """The median over the runs of the step that so many are slower than."""
    return statistics.median(sorted(run)[-1 - rank] for run in runs)


def _in_process(name: str, seed: int, mode: str, cache: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--first-steps", name, "--mode", mode, "--seed", str(seed)],
        env={**os.environ, "TORCHNEURON_CACHE_DIR": cache, "TORCHNEURON_EAGER": mode},
        capture_output=True,
        text=True,
        check=True,
    )
    run: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return run


def main() -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--first-steps", choices=SCRIPTS, help=argparse.SUPPRESS)
    parser.add_argument("--mode", default="adaptive", help=argparse.SUPPRESS)
    parser.add_argument("--warm-up", action="store_true", help="the warm-up alone")
    options = parser.parse_args()
    if options.first_steps:
        print(json.dumps(first_steps(options.first_steps, options.seed, options.mode)))
        return 0
    from torchneuron.settings import settings

    settings.eager = "adaptive"  # starts what compiles windows
    cases = [*([] if options.warm_up else compare(options)), *warm_up(options)]
    limits = [limit for limit in LIMITS if limit.group == WARM_UP or not options.warm_up]
    results = Results(
        "adaptive eager", options.device, cases, (COMPILED, STRICT, CPU), limits, peer="peer"
    )
    return finish(results, options)


if __name__ == "__main__":
    sys.exit(main())
