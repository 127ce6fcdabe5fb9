"""What the four example jobs share: their result, their progress reports, the device's counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

# Called with the part done (0 to 1) and a few words on what is being done.
Progress = Callable[[float, str], None]


def silent(_done: float, _what: str) -> None:
    """Report no progress."""


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
