"""``Governor``: bounds the share of the processor's time that the compiling process takes on a
machine of few cores.

The child works in idle time alone (the scheduler's idle class), since every other program's threads
wake up as fast on a core that does such work as on one that does none. It shares caches with them
all the same: so it runs for a moment and rests for a longer one, while the user's program is busy.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

FEW_CORES = 4
# The exit status that says: in idle time alone the child gets nowhere.
STARVED = 75
_WORK_SECONDS, _REST_SECONDS = 0.005, 0.02
# How often to look whether the user's program is busy, and the share of a core that counts as busy.
_LOOK_SECONDS, _BUSY = 0.1, 0.3
# Over so long, a child that could have run and waited for more than this share of it is starved.
_STARVED_SECONDS, _STARVED_SHARE = 1.0, 0.8


class Governor:
    """Looks after a child of this process for a user's process."""

    def __init__(self, child: int, user: int, meek: bool) -> None:
        """``meek``: the child is in the idle class."""
        self._child, self._user, self._meek = child, user, meek

    def run(self) -> None:
        """As long as the child lives, let it run for a share of the time that the user is busy.

        Where others leave no idle time it gets a share like theirs; if the system does not let this
        process give it that, this one ends with STARVED.
        """
        looked, used, busy = time.monotonic(), _seconds_used(self._user), True
        checked, waited = looked, 0.0
        while os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            now = time.monotonic()
            if now - looked > _LOOK_SECONDS:
                before, used = used, _seconds_used(self._user)
                busy, looked = used - before > _BUSY * (now - looked), now
            if self._meek and now - checked > _STARVED_SECONDS:
                before_, waited = waited, _seconds_waited(self._child)
                # While it rests it does not wait.
                could = _WORK_SECONDS / (_WORK_SECONDS + _REST_SECONDS) if busy else 1.0
                if waited - before_ > _STARVED_SHARE * could * (now - checked):
                    self._lift()
                checked = now
            if busy:
                os.kill(self._child, signal.SIGSTOP)
                # Outside of the idle class it has a small share of what all programs want anyway.
                time.sleep(_REST_SECONDS if self._meek else _WORK_SECONDS)
                os.kill(self._child, signal.SIGCONT)
            time.sleep(_WORK_SECONDS)

    def _lift(self) -> None:
        """Take the child out of the idle class. That is a privilege."""
        self._meek = False
        try:
            for task in os.listdir(f"/proc/{self._child}/task"):
                with suppress(ProcessLookupError):
                    os.sched_setscheduler(int(task), os.SCHED_OTHER, os.sched_param(0))
        except FileNotFoundError:
            return  # it has ended
        except PermissionError:
            os.kill(self._child, signal.SIGKILL)
            os._exit(STARVED)


def _seconds_used(process: int) -> float:
    """The processor time that a process has taken; 0 if it is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0.0
    # The name, in parentheses, may hold anything.
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _seconds_waited(process: int) -> float:
    """How long the process's first thread could have run and did not; 0 if that is not told."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
