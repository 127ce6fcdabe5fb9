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
import importlib.util
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent
_SET_PARENT_DEATH_SIGNAL = 1
_NICE = 5


def main(descriptor: int, plugin: str, options: dict[str, int], meek: bool) -> None:
    """Serve the connection that this file descriptor is, in a child that compiles with a plugin.

    ``meek``: on a machine of few cores the child works in idle time alone.
    """
    _without_pytorch()
    from torchneuron.adaptive.governor import FEW_CORES, Governor

    user, parent = os.getppid(), os.getpid()
    _step_back()
    governed = len(os.sched_getaffinity(0)) < FEW_CORES
    child = os.fork()
    if child == 0:
        _end_with_parent()
        if os.getppid() != parent:
            return  # it has ended before this one could ask to be told
        if governed and meek:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        _serve(Connection(descriptor), partial(_client, plugin, tuple(options.items())))
        return
    os.close(descriptor)
    if governed:
        Governor(child, user, meek).run()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _serve(connection: Connection, client: Callable[[], Any]) -> None:
    def compile_(module: bytes, flags: dict[str, str]) -> bytes:
        serialized: bytes = client().compile(module, 0, flags).serialize()
        return serialized

    work: dict[str, Callable[..., Any]] = {"fuse": _fuse, "compile": compile_}
    # Now, and not when the first window waits for it. What fails says so when it is asked for.
    with suppress(Exception):
        _load_mlir()
        client()
    while True:
        try:
            kind, *arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = ("ok", work[kind](*arguments))
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


def _without_pytorch() -> None:
    """Make this library's modules importable that need no PyTorch, without their packages' own,
    which do: importing it takes some seconds of a processor, more than most windows.
    """
    for name in ("torchneuron", "torchneuron.adaptive", "torchneuron.lowering"):
        package = ModuleType(name)
        package.__path__ = [str(_HERE.parent.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package


def _load_mlir() -> None:
    from torchneuron.lowering import mlir

    mlir.load()


def _fuse(stretch: Any) -> Any:
    from torchneuron.lowering.window import fuse

    return fuse(stretch)


@cache
def _client(plugin: str, options: tuple[tuple[str, int], ...]) -> Any:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("PyTorch is not there")
    # The core is linked with it; no tensor is made here.
    library = Path(spec.submodule_search_locations[0], "lib", "libtorch_python.so")
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    from torchneuron import _C

    return _C.pjrt.Client(plugin, dict(options))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4] == "meek")
