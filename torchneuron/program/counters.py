"""Connects the core's counters to the metrics."""

from functools import cache

from torchneuron import _C
from torchneuron.program.metrics import METRICS


@cache
def connect() -> None:
    """Let the metrics read the core's counters; once."""
    METRICS.provide(_C.hot_counters)
