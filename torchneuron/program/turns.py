"""Turns between processes: of several that need the same program, one compiles it and the others wait.

The turn is a lock on a file beside the program's, which goes when the turn ends. The system gives
the lock up for a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Beyond this a program is compiled twice rather than waited for.
_PATIENCE_SECONDS = 600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


@contextmanager
def turn(path: str) -> Iterator[bool]:
    """Hold the turn named by the file ``path``; yields whether another process had it first.

    Where there can be no such file (a directory that is not ours to write, a filesystem without
    locks) everyone takes their turn at once.
    """
    waited = False
    deadline = time.monotonic() + _PATIENCE_SECONDS
    pause = _FIRST_PAUSE
    file = -1
    while file < 0:
        try:
            file = _take(path)
        except OSError:
            break
        if file < 0:
            waited = True
            if time.monotonic() > deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    try:
        yield waited
    finally:
        if file >= 0:
            with suppress(OSError):
                os.unlink(path)
            with suppress(OSError):
                # Explicitly, and not by closing: a fork meanwhile may have copied the descriptor.
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


def _take(path: str) -> int:
    """The locked file's descriptor, or -1 while another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last owner may have removed the file between our opening and our locking it.
        if os.fstat(file).st_nlink:
            return file
    except BlockingIOError:
        pass
    except OSError:
        os.close(file)
        raise
    os.close(file)
    return -1
