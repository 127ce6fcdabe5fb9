"""What the device did: programs, hits, executions, fallbacks, bytes.

The counters are imported at the first call, to keep ``import torch`` light.
"""

from typing import Any


def metrics() -> dict[str, Any]:
    """Counters since the start or the last ``reset_metrics``.

    Keys: ``programs_compiled``, ``cache_hits_memory``, ``cache_hits_disk``, ``executions``,
    ``fallbacks`` (calls by op), ``lowering_seconds``, ``compile_seconds``, ``bytes_h2d``,
    ``bytes_d2h``, and a few more.
    """
    from torchneuron.program import counters
    from torchneuron.program import metrics as program

    counters.connect()
    return program.metrics()


def reset_metrics() -> None:
    """Start all counters anew."""
    from torchneuron.program import counters
    from torchneuron.program import metrics as program

    counters.connect()
    program.reset_metrics()


def metrics_report() -> str:
    """The counters as text.

    Programs compiled and why, time by stage, hits by cache level, fallbacks with their lines.
    """
    from torchneuron.program import counters
    from torchneuron.program import metrics as program

    counters.connect()
    return program.metrics_report()
