"""How soon a process has done its first training step: cold, and with a warm disk cache.

    python benchmarks/warm_process.py --json warm.json

The job is `examples/char_gpt.py`. A cold process finds an empty cache directory, a warm one the
directory that the cold one filled. Time runs from the start of the process to the end of its first
step, with Python's and torch's imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
GROUP = "first step"
PARTS = ("imported", "built", "ready")


def first_step(device: str, spawned: float) -> dict[str, Any]:
    """Build the job's model and train one step; return seconds since `spawned` at three points."""
    import torch

    sys.path.insert(0, str(EXAMPLES))
    import char_gpt

    times = {"imported": time.monotonic() - spawned}
    trainer = char_gpt.Trainer(device, char_gpt.Config(), char_gpt.split_text()[0])
    times["built"] = time.monotonic() - spawned
    loss = trainer.step().item()
    times["ready"] = time.monotonic() - spawned
    metrics = getattr(torch.get_device_module(device), "metrics", None)
    return {"times": times, "loss": loss, "metrics": metrics() if metrics else None}


def child(device: str, cache: str) -> dict[str, Any]:
    """Run `first_step` in a process of its own with this disk cache."""
    # time.monotonic is one clock for all processes of a Linux machine.
    command = [sys.executable, __file__, "--child", repr(time.monotonic()), "--device", device]
    environment = os.environ | {"TORCHNEURON_CACHE_DIR": cache}
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    outcome: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return outcome


def measure(device: str, repeats: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the outcomes of cold and of warm processes, started in turn."""
    cold: list[dict[str, Any]] = []
    warm: list[dict[str, Any]] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="torchneuron-warm-") as cache:
            for outcomes, name in ((cold, "cold"), (warm, "warm")):
                outcomes.append(child(device, cache))
                ready = outcomes[-1]["times"]["ready"]
                print(
                    f"{name} process: first step after {ready:.2f} s", file=sys.stderr, flush=True
                )
    return cold, warm


def median_of(outcomes: list[dict[str, Any]], part: str) -> float:
    """Return the median time at which the processes had come to `part`."""
    return statistics.median(float(outcome["times"][part]) for outcome in outcomes)


def main() -> int:
    """Run from the command line."""
    from _harness import Case, Limit, Results, add_options, finish

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--child", type=float, metavar="SPAWNED", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(first_step(options.device, options.child)))
        return 0

    repeats = 1 if options.quick else 3
    cold, warm = measure(options.device, repeats)
    ours, peer = median_of(warm, "ready"), median_of(cold, "ready")
    details = {
        "ours": "warm process",
        "peer": "cold process",
        "processes": repeats,
        "same_loss": len({outcome["loss"] for outcome in cold + warm}) == 1,
        "warm": {part: median_of(warm, part) for part in PARTS},
        "cold": {part: median_of(cold, part) for part in PARTS},
        "warm_metrics": warm[-1]["metrics"],
        "cold_metrics": cold[-1]["metrics"],
    }
    case = Case("char_gpt, warm against cold", GROUP, ours, peer, ours / peer, details)
    limits = [Limit(GROUP, "worst", 0.25)]
    results = Results("warm_process", "warm", [case], (GROUP,), limits, peer="cold")
    return finish(results, options)


if __name__ == "__main__":
    raise SystemExit(main())
