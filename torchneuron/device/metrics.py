"""What the device did: programs, hits, executions, fallbacks, bytes."""

from typing import Any

from torchneuron.eager import counters

from torchneuron.program import metrics as _program


def metrics() -> dict[str, Any]:
    """Counters since the start or the last ``reset_metrics``.

    Keys: ``programs_compiled``, ``cache_hits_memory``, ``cache_hits_disk``, ``executions``, ``fallbacks`` (calls by
    op), ``lowering_seconds``, ``compile_seconds``, ``bytes_h2d``, ``bytes_d2h``, and a few more.
    """
    counters.connect()
    return _program.metrics()


def reset_metrics() -> None:
    """Start all counters anew."""
    counters.connect()
    _program.reset_metrics()


def metrics_report() -> str:
    """The counters as text: programs compiled and why, time by stage, hits by cache level, fallbacks with lines."""
    counters.connect()
    return _program.metrics_report()
