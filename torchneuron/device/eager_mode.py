"""How eager operations run, and what adaptive eager made of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from textwrap import shorten
from typing import Any, Literal

from torchneuron import _C
from torchneuron.settings import settings

Mode = Literal["adaptive", "strict", "blocking"]

# Operations on lists name all their shapes.
_LABEL_WIDTH = 100


@contextmanager
def eager_mode(mode: Mode) -> Iterator[None]:
    """Run the operations of a block in another mode; the process's, as ``TORCHNEURON_EAGER`` sets.

    ``adaptive`` runs stretches of operations that repeat as one program each, ``strict`` one program
    per operation, ``blocking`` also waits for each, so that an error is raised by the call that
    caused it. The mode counts for all threads. ValueError for another name.

    Example::

        with torch.neuron.eager_mode("blocking"):
            loss = model(x).sum()
    """
    before = settings.eager
    settings.eager = mode
    try:
        yield
    finally:
        settings.eager = before


def windows() -> list[dict[str, Any]]:
    """The windows that adaptive eager knows, oldest first.

    Of each: ``number``, ``device``, ``ops`` (how many), ``state`` (``compiling``, ``ready`` or
    ``dropped``), ``fused_runs`` and ``single_runs`` (op by op, since recognised), ``fused_seconds`` and
    ``single_seconds`` (the fastest run when the program was new; infinite if not measured),
    ``first`` and ``last`` operation with ``first_line`` and ``last_line`` of the user's program, ``ends`` (why it
    ends where it does), and ``dropped`` (why, if it was).
    """
    return _C.window_reports()


def windows_report() -> str:
    """``windows`` as text."""
    known = windows()
    if not known:
        return "No windows: nothing has repeated, or eager operations do not run adaptively."
    lines = ["  ops     fused  one by one  time fused / one by one  state"]
    for window in known:
        lines.append(
            f"{window['ops']:>5}  {window['fused_runs']:>8}  {window['single_runs']:>10}  "
            f"{_milliseconds(window['fused_seconds'])} / {_milliseconds(window['single_seconds'])}  "
            f"{window['state']}{': ' if window['dropped'] else ''}{window['dropped']}"
        )
        for name, text in (("from", "first"), ("to", "last")):
            line = f" at {window[f'{text}_line']}" if window[f"{text}_line"] else ""
            label = shorten(window[text], _LABEL_WIDTH, placeholder=" ...)")
            lines.append(f"         {name:<5}{label}{line}")
        lines.append(f"         ends because of: {window['ends']}")
    return "\n".join(lines)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:>7.2f} ms" if isfinite(seconds) else "         -"
