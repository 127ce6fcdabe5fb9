"""A long training run in adaptive mode that does what real scripts do now and then.

    python benchmarks/soak.py --json soak.json      # 20,000 steps
    python benchmarks/soak.py --mode strict         # the same steps in another mode

A small classifier with dropout is trained with AdamW on batches of which every 50th is smaller; the
loss is read every 10 steps, the model evaluated every 500 and saved and loaded every 1,000. After
the first quarter nothing may grow: memory, programs, windows, threads. Each step is waited for, so
that its time is the whole of it. PyTorch's CPU runs the same steps first: its stalls are the
machine's and the interpreter's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from _harness import settle_of
from rich.progress import track
from torch import nn
from torch.nn import functional as F

STEPS = 20_000
SMALL_BATCH, LOG, EVALUATE, SAVE = 50, 10, 500, 1000
# Of a run: until then programs may be made and memory may grow.
WARM_UP = 0.25


@dataclass
class Sample:
    """What the process holds after a step."""

    step: int
    resident_bytes: int
    device_bytes: int
    threads: int
    programs: int
    windows: int


@dataclass
class Run:
    """What a run on a device gave."""

    loss: float = 0.0
    accuracy: float = 0.0
    seconds: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


def model_and_data(seed: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A classifier of 16 features into 4 classes, and points that it can learn to tell apart."""
    torch.manual_seed(seed)
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    model = nn.Sequential(nn.Linear(16, 64), *layers, nn.Dropout(0.1), nn.Linear(64, 4))
    centres = torch.randn(4, 16)
    labels = torch.randint(4, (2048,))
    return model, centres[labels] + 0.7 * torch.randn(2048, 16), labels


def batches(data: torch.Tensor, labels: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """32 points each, every 50th batch 12, without end."""
    step = 0
    while True:
        step += 1
        size = 12 if step % SMALL_BATCH == 0 else 32
        start = (step * 32) % (len(data) - 32)
        yield data[start : start + size], labels[start : start + size]


def evaluate(model: nn.Module, data: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of points that the model classifies rightly."""
    model.eval()
    with torch.no_grad():
        right = [
            (model(data[i : i + 256]).argmax(-1) == labels[i : i + 256]).sum().item()
            for i in range(0, len(data), 256)
        ]
    model.train()
    return sum(right) / len(data)


def sample(step: int, device: str) -> Sample:
    """What the process holds now."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    threads = len(os.listdir("/proc/self/task"))
    if device == "cpu":
        return Sample(step, resident, 0, threads, 0, 0)
    torch.accelerator.synchronize()
    metrics = torch.neuron.metrics()
    programs = metrics["programs_compiled"] + metrics["cache_hits_disk"]
    windows = metrics.get("windows_compiled", 0) + metrics.get("windows_from_disk", 0)
    held = torch.accelerator.memory_allocated()
    return Sample(step, resident, held, threads, int(programs), int(windows))


def train(device: str, steps: int, seed: int) -> Run:
    """Run the script on a device."""
    model, data, labels = model_and_data(seed)
    model, data, labels = model.to(device), data.to(device), labels.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    run, source, settle = Run(), batches(data, labels), settle_of(device)
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "checkpoint.pt")
        for step in track(range(1, steps + 1), device, disable=not sys.stderr.isatty()):
            x, y = next(source)
            started = time.perf_counter()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % LOG == 0:
                run.loss = loss.item()
            settle()
            run.seconds.append(time.perf_counter() - started)
            if step % EVALUATE == 0:
                run.accuracy = evaluate(model, data, labels)
            if step % SAVE == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, saved)
                loaded = torch.load(saved, weights_only=True)
                model.load_state_dict(loaded["model"])
                optimizer.load_state_dict(loaded["optimizer"])
                run.samples.append(sample(step, device))
    return run


def stalls(seconds: list[float]) -> dict[str, float]:
    """How often and how far steps after the warm-up exceeded three times their median."""
    late = seconds[int(len(seconds) * WARM_UP) :]
    median = statistics.median(late)
    worst = max(range(len(late)), key=late.__getitem__)
    return {
        "median_ms": 1e3 * median,
        "worst_over_median": late[worst] / median,
        "worst_step": len(seconds) - len(late) + worst + 1,
        "steps_over_3_medians": sum(second > 3 * median for second in late),
        "steps": len(late),
    }


def growth(samples: list[Sample]) -> dict[str, float]:
    """Of each figure, the last sample beside the first after the warm-up."""
    settled = [s for s in samples if s.step >= samples[-1].step * WARM_UP]
    first, last = settled[0], settled[-1]
    return {
        "resident_ratio": last.resident_bytes / first.resident_bytes,
        "device_ratio": last.device_bytes / max(1, first.device_bytes),
        "threads": last.threads - first.threads,
        "programs": last.programs - first.programs,
        "windows": last.windows - first.windows,
    }


def main() -> int:
    """Run the soak from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--mode", choices=("adaptive", "strict"), default="adaptive")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    from torchneuron.settings import settings

    settings.eager = options.mode
    result: dict[str, Any] = {"benchmark": "soak", "mode": options.mode, "steps": options.steps}
    for device in ("cpu", "neuron"):
        run = train(device, options.steps, options.seed)
        result[device] = {
            "accuracy": run.accuracy,
            "loss": run.loss,
            "growth": growth(run.samples),
            "stalls": stalls(run.seconds),
            "samples": [asdict(s) for s in run.samples],
        }
        shown = {key: value for key, value in result[device].items() if key != "samples"}
        print(device, json.dumps(shown, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
