"""Takes windows from the core, has them compiled in another process, and hands the programs back."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from torchneuron import _C
from torchneuron.adaptive.governor import STARVED
from torchneuron.lowering.window import Fused, Stretch
from torchneuron.program.compiler import Compiler
from torchneuron.program.errors import PluginNotFoundError
from torchneuron.program.metrics import METRICS, Metrics
from torchneuron.program.plugin import client_options, find_plugin
from torchneuron.program.session import compile_flags, compiler, flags_of, toolchain

# An idle worker holds memory that the user's program may want.
_IDLE_SECONDS = 60.0
# How long a process that has closed its connection may take to end.
_LAST_WORDS_SECONDS = 0.2
# How long the thread may take to load the program it has at the end of the process.
_END_SECONDS = 5.0
# While a program is loaded: a few hundred milliseconds of a core that the user's program may want.
_LOADING_NICE = 10
_WORKER = str(Path(__file__).with_name("worker.py"))


class WorkerError(RuntimeError):
    """The worker could not do what it was asked for, or died of it."""


class Worker:
    """The other end of ``worker.py``, started again when asked after a crash or an idle time."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._ended = False
        self._meek = True  # works in idle time alone, where cores are few
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None

    def start(self) -> None:
        """Start the process unless there is one.

        By the thread that asks: the process ends when the thread that started it does.
        """
        if self._ended:
            raise WorkerError("the process is ending")
        if self._process is not None and self._process.poll() is not None:
            self.stop()  # it has died in idleness: killed when memory was short, say
        if self._process is None:
            self._start()

    def ask(self, kind: str, *arguments: Any) -> Any:
        """The worker's answer; WorkerError if it has none."""
        try:
            self.start()
            self._connection.send((kind, *arguments))
            state, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            if self._process is None:
                raise WorkerError(f"the compiling process does not start: {error}") from error
            code = self.stop(_LAST_WORDS_SECONDS)
            if code == STARVED and self._meek:
                self._meek = False
                return self.ask(kind, *arguments)
            raise WorkerError(f"the compiling process ended with {code}") from error
        if state == "error":
            raise WorkerError(answer)
        return answer

    def stop(self, patience: float = 0.0) -> int:
        """End the process, unless it does so itself within so many seconds; its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=patience)
        process.kill()
        return process.wait()

    def end(self) -> None:
        """End the process, and start no other."""
        self._ended = True
        self.stop()

    def _start(self) -> None:
        ours, theirs = Pipe()
        with theirs:
            plugin = find_plugin()
            options = json.dumps(client_options(plugin, 1))
            manner = "meek" if self._meek else "equal"
            # Not under the user's working directory, whose files may hide the library's modules; and
            # by its file, since its package would import PyTorch.
            self._process = subprocess.Popen(
                [sys.executable, "-P", _WORKER, str(theirs.fileno()), plugin.path, options, manner],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # With this process's import path, whatever it is made of.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection = ours


class _RemoteExecutable:
    """An executable loaded here with the bytes that the worker made."""

    def __init__(self, executable: Any, serialized: bytes) -> None:
        self.loaded = executable
        self._serialized = serialized

    def serialize(self) -> bytes:
        return self._serialized

    def cost_analysis(self) -> dict[str, float]:
        costs: dict[str, float] = self.loaded.cost_analysis()
        return costs


class _RemoteClient:
    """A PJRT client that compiles in the worker and loads here."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def compile(self, mlir: bytes, device: int, flags: dict[str, str], /) -> _RemoteExecutable:
        serialized = self._worker.ask("compile", mlir, flags)
        return self.deserialize(serialized, device)

    def deserialize(self, serialized: bytes, device: int, /) -> _RemoteExecutable:
        loaded = _aside(lambda: _C.client().deserialize(serialized, device))
        return _RemoteExecutable(loaded, serialized)


def _aside(load: Callable[[], Any]) -> Any:
    """What ``load`` returns, in a thread of low priority: none can raise its own again."""
    with ThreadPoolExecutor(1, "neuron-load", initializer=_lower_priority) as executor:
        result = executor.submit(load).result()
    # Loading takes twice the memory that the program then needs, and malloc keeps it for the thread.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return result


def _lower_priority() -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOADING_NICE)


class Service:
    """The thread that serves the core, its worker and its compiler."""

    def __init__(self) -> None:
        """Starts the thread."""
        self._worker = Worker()
        self.metrics = Metrics()
        client = _RemoteClient(self._worker)
        # Remembers nothing: a window holds its program, and one that is dropped gives it back.
        self._compiler = Compiler(
            lambda: client, compiler().cache, metrics=self.metrics, memory_entries=0
        )
        METRICS.provide(self._counters)
        self._thread = threading.Thread(target=self._run, name="neuron-windows", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The core wants no more windows. A thread in the midst of loading a program must not come
        back from it to an interpreter that is gone: that would be the end of the process.
        """
        self._worker.end()
        self._thread.join(_END_SECONDS)

    def _counters(self) -> dict[str, int | float]:
        numbers = self.metrics.snapshot()
        return {
            "windows_compiled": numbers["programs_compiled"],
            "windows_from_disk": numbers["cache_hits_disk"],
            "window_compile_seconds": numbers["lowering_seconds"] + numbers["compile_seconds"],
        }

    def _run(self) -> None:
        # Now, while the first operations are compiled. If there cannot be a process, it is said of
        # each window that asks for one.
        with contextlib.suppress(OSError, WorkerError, PluginNotFoundError):
            self._worker.start()
        while _C.windows_wanted():
            window = _C.next_window(_IDLE_SECONDS)
            if window is None:
                self._worker.stop()
                continue
            try:
                self._serve(window)
            except Exception as error:  # whatever it is, the user's program goes on op by op
                window.fail(f"{type(error).__name__}: {error}")

    def _serve(self, window: Any) -> None:
        described = window.describe()
        stretch = Stretch(
            described["modules"], described["steps"], described["outside"], described["outputs"]
        )

        def fused() -> Fused:
            answer: Fused = self._worker.ask("fuse", stretch)
            return replace(answer, flags=flags_of(reduces_rows=answer.reduces_rows))

        program = self._compiler.compile_program(
            toolchain().parts(stretch.key()),
            fused,
            {},
            described["ordinal"],
            op="window",
            signature=window.label(),
            flags=compile_flags(),
        )
        window.install(program.executable.loaded, program.metadata["donatable"])


_starting = threading.Lock()


def start() -> Service:
    """The process's service, started by the first call; any thread may make that."""
    with _starting:
        return _service()


def end() -> None:
    """End the service if there is one; the core wants no more windows."""
    with _starting:
        if _service.cache_info().currsize:
            _service().end()


@cache
def _service() -> Service:
    return Service()
