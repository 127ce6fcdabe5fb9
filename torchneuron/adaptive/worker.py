"""The process that fuses and compiles windows, apart from the user's: its GIL and its crashes are
its own, and so is the bounded share of the processor's time that it takes.

Two processes in fact: a governor, which the user's process starts, and its child, which works and
which the governor stops and continues. (A process that stops tells its parent; the user's is not
to hear of it all the time.) The worker answers requests on a connection, one at a time, until the
other end closes it or dies:

    ("fuse", Stretch)                    ("ok", Fused)
    ("compile", module, options)         ("ok", serialized executable)
                                         ("error", text)
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_SET_PARENT_DEATH_SIGNAL = 1
_NICE = 5
# A low priority is not enough on a machine of few cores: waking up on a core that does something
# takes longer than on one that does nothing, and eager programs wake each other all the time. So
# there the worker runs for a moment and rests for a longer one, while the user's program is busy.
_FEW_CORES = 4
_WORK_SECONDS, _REST_SECONDS = 0.005, 0.02
# How often to look whether it is, and the share of a core that counts as busy.
_LOOK_SECONDS, _BUSY = 0.1, 0.3


def main(descriptor: int) -> None:
    """Serve the connection that this file descriptor is, in a child."""
    user, governor = os.getppid(), os.getpid()
    _step_back()
    child = os.fork()
    if child == 0:
        _end_with_parent()
        if os.getppid() == governor:  # else it has ended before this one could ask to be told
            _serve(Connection(descriptor))
        return
    os.close(descriptor)
    if len(os.sched_getaffinity(0)) < _FEW_CORES:
        _govern(child, user)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _govern(child: int, user: int) -> None:
    """As long as the child lives, let it run for a share of the time that the user is busy."""
    looked, used, busy = time.monotonic(), _seconds_used(user), True
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        now = time.monotonic()
        if now - looked > _LOOK_SECONDS:
            before, used = used, _seconds_used(user)
            busy, looked = used - before > _BUSY * (now - looked), now
        if busy:
            os.kill(child, signal.SIGSTOP)
            time.sleep(_REST_SECONDS)
            os.kill(child, signal.SIGCONT)
        time.sleep(_WORK_SECONDS)


def _seconds_used(process: int) -> float:
    """The processor time that a process has taken; 0 if it is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0.0
    # The name, in parentheses, may hold anything.
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _serve(connection: Connection) -> None:
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


def _end_with_parent() -> None:
    with suppress(OSError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _step_back() -> None:
    """Leave the processor to the user's program, and end with the process that started this one."""
    os.nice(_NICE)
    _end_with_parent()
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
