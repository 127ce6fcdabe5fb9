"""What the four example jobs share: their result, their progress reports, the device's counters."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

# Called with the part done (0 to 1) and a few words on what is being done.
Progress = Callable[[float, str], None]


def silent(_done: float, _what: str) -> None:
    """Report no progress."""


class ConsoleProgress:
    """Progress on stderr: on a terminal one line, written over; elsewhere a line now and then."""

    SECONDS_BETWEEN_LINES = 5.0

    def __init__(self) -> None:
        """Start with nothing shown."""
        self._terminal = sys.stderr.isatty()
        self._last = -self.SECONDS_BETWEEN_LINES

    def __call__(self, done: float, what: str) -> None:
        """Show how much is done and what is being done."""
        now = time.monotonic()
        if self._terminal:
            end = "\n" if done >= 1 else ""
            print(f"\r{done:4.0%}  {what:<70.70}", end=end, file=sys.stderr, flush=True)
        elif done >= 1 or now - self._last >= self.SECONDS_BETWEEN_LINES:
            self._last = now
            print(f"{done:4.0%}  {what}", file=sys.stderr, flush=True)


@dataclass
class JobResult:
    """What a job found: `result` is one line for a table, `figures` the numbers behind it."""

    job: str
    title: str
    passed: bool
    result: str
    seconds: float
    figures: dict[str, Any] = field(default_factory=dict)


def read_metrics(device: torch.device) -> dict[str, Any] | None:
    """Return the device's metrics, or None where the device keeps none (the CPU)."""
    metrics = getattr(torch.get_device_module(device), "metrics", None)
    return None if metrics is None else dict(metrics())


class Counters:
    """The device's metrics counted from the moment this object was made.

    Counting differences leaves the process-wide counters alone, so that counters can be nested.
    """

    def __init__(self, device: torch.device) -> None:
        """Start counting now."""
        self._device = device
        self._start = read_metrics(device)

    def read(self) -> dict[str, Any] | None:
        """Return the counts so far: numbers by key, `fallbacks` a dict of counts by operator."""
        now = read_metrics(self._device)
        if now is None or self._start is None:
            return None
        return {key: _difference(value, self._start.get(key)) for key, value in now.items()}

    def new_programs(self) -> int | None:
        """Return how many programs were new to this process: compiled, or loaded from disk."""
        counts = self.read()
        if counts is None:
            return None
        return int(counts["programs_compiled"]) + int(counts["cache_hits_disk"])


def _difference(now: Any, before: Any) -> Any:
    if isinstance(now, dict):
        old = before or {}
        changed = {key: count - old.get(key, 0) for key, count in now.items()}
        return {key: count for key, count in changed.items() if count}
    if isinstance(now, (int, float)):
        return now - (before or 0)
    return now


def fell_back(counts: dict[str, Any] | None) -> bool:
    """Say whether any operator of these counts ran on the CPU instead of the device."""
    return counts is not None and bool(counts["fallbacks"])
