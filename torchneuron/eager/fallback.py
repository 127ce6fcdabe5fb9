"""The policy for ops that cannot run on the device: warn, allow or refuse. Nothing falls back silently by default."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from torchneuron.program.metrics import METRICS
from torchneuron.settings import settings

_warned: set[str] = set()
_issued_from: ContextVar[str] = ContextVar("issued_from", default="")
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


@contextmanager
def issued_from(line: str) -> Iterator[None]:
    """While the block runs, operations come from ``line`` (``file:line``), wherever the call stack is; an empty
    one changes nothing.
    """
    token = _issued_from.set(line)
    try:
        yield
    finally:
        _issued_from.reset(token)


def user_line() -> str:
    """``file:line`` of the innermost Python frame that is neither torch's nor ours; empty if there is none."""
    if not settings.stack_trace:
        return ""
    return _issued_from.get() or ":".join(map(str, _frame_line()))


def _frame_line() -> tuple[str, int] | tuple[()]:
    frame = user_frame()
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ()


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
        warnings.warn_explicit(
            f"{op} runs on the CPU: {reason}{where}. This costs a copy to the host and back at every call; "
            "TORCHNEURON_FALLBACK=error finds such calls, =allow silences this.",
            FallbackWarning,
            *_warning_place(),
        )


def _warning_place() -> tuple[str, int]:
    """File and line that a warning names."""
    file, _, line = _issued_from.get().rpartition(":")
    return (file, int(line)) if file else _frame_line() or ("<autograd>", 0)
