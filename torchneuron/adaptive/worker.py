"""The process that fuses and compiles windows, apart from the user's: its GIL and its crashes are
its own, and it only takes processor time that nobody else wants.

It answers requests on a connection, one at a time, until the other end closes it or dies:

    ("fuse", Stretch)                    ("ok", Fused)
    ("compile", module, options)         ("ok", serialized executable)
                                         ("error", text)
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

_SET_PARENT_DEATH_SIGNAL = 1
# A tenth of a core where the user's program keeps all of them busy; at the lowest priority a
# window's program might never come.
_NICE = 10


def main(descriptor: int) -> None:
    """Serve the connection that this file descriptor is."""
    _step_back()
    connection = Connection(descriptor)
    while True:
        try:
            kind, *arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = ("ok", _WORK[kind](*arguments))
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            answer = ("error", text)
        with suppress(OSError):
            connection.send(answer)


def _step_back() -> None:
    """Leave the processor to the user's program, and end with the process that started this one."""
    os.nice(_NICE)
    with suppress(OSError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    # Ctrl-C goes to the whole group; it is the user's program that decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _fuse(stretch: Any) -> Any:
    from torchneuron.lowering.window import fuse

    return fuse(stretch)


def _compile(module: bytes, options: dict[str, str]) -> bytes:
    from torchneuron import _C

    executable = _C.client().compile(module, 0, options)
    serialized: bytes = executable.serialize()
    return serialized


_WORK: dict[str, Callable[..., Any]] = {"fuse": _fuse, "compile": _compile}

if __name__ == "__main__":
    main(int(sys.argv[1]))
