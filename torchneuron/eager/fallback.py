"""The policy for ops that cannot run on the device: warn, allow or refuse. Nothing falls back silently by default."""

import os
import sys
import warnings
from types import FrameType

from torchneuron.program.metrics import METRICS
from torchneuron.settings import settings

_warned: set[str] = set()
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class FallbackWarning(UserWarning):
    """An op ran on the CPU instead of the device."""


def user_frame() -> FrameType | None:
    """The innermost Python frame that is neither torch's nor ours."""
    import torch

    torch_root = os.path.dirname(os.path.abspath(torch.__file__))
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((torch_root, _OWN, "<")):
            return frame
        frame = frame.f_back
    return None


def user_line() -> str:
    """``file:line`` of the innermost Python frame that is neither torch's nor ours; empty if there is none."""
    if not settings.stack_trace:
        return ""
    frame = user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def announce(op: str, reason: str) -> None:
    """Count a call that goes to the CPU, warn about it once per op, or refuse it.

    Raises NotImplementedError if the setting ``fallback`` is ``error``.
    """
    line = user_line()
    where = f" (at {line})" if line else ""
    if settings.fallback == "error":
        raise NotImplementedError(
            f"{op} has no neuron program: {reason}{where}. TORCHNEURON_FALLBACK=warn lets it run on the CPU."
        )
    METRICS.record_fallback(op, reason, line)
    if settings.fallback == "warn" and op not in _warned:
        _warned.add(op)
        frame = user_frame()
        warnings.warn_explicit(
            f"{op} runs on the CPU: {reason}{where}. This costs a copy to the host and back at every call; "
            "TORCHNEURON_FALLBACK=error finds such calls, =allow silences this.",
            FallbackWarning,
            frame.f_code.co_filename if frame is not None else "<autograd>",
            frame.f_lineno if frame is not None else 0,
        )
