"""Runs tasks in worker processes that are watched: one that dies or hangs is an answer like any other.

A worker is a module run with ``--work``. It calls ``serve``: a task a line of JSON in, an answer a line of JSON out.
"""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Memory that compilers keep adds up: a worker which has taken so much gives way to a new one.
MOST_BYTES = 4 << 30


class WorkerDied(Exception):
    """The worker ended, or took too long, over a task."""


class Worker:
    """A process that answers tasks, one at a time."""

    def __init__(self, module: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--work"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,  # a line that waits in a buffer would not wake select
        )

    def ask(self, task: Any, timeout: float) -> Any:
        """The answer to a task; WorkerDied if there is none within ``timeout`` seconds."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
        except BrokenPipeError:
            raise WorkerDied(self._last_words()) from None
        ready, _, _ = select.select([process.stdout], [], [], timeout)
        if not ready:
            raise WorkerDied(f"takes longer than {timeout:g} s")
        line = process.stdout.readline()
        if not line:
            raise WorkerDied(self._last_words())
        return json.loads(line)

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None
            pipe.close()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return f"the process dies with {code}: {next(filter(None, reversed(lines)), '')[:200]}"


def run_all(
    module: str,
    tasks: Sequence[Any],
    timeout: float,
    jobs: int = 1,
    most_bytes: int | None = MOST_BYTES,
) -> Iterator[tuple[Any, Any]]:
    """Each task with its answer, as they come; the answer is a WorkerDied if the worker died over it.

    A worker that has taken more than ``most_bytes`` gives way to a new one; None is no limit.
    """
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    stop = threading.Event()
    threads = [
        threading.Thread(target=_answer, args=(module, waiting, answers, timeout, most_bytes, stop))
        for _ in range(min(jobs, len(tasks)))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in tasks:
            answer = answers.get()
            if answer[0] is None:
                raise answer[1]
            yield answer
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _answer(
    module: str,
    waiting: queue.SimpleQueue[Any],
    answers: queue.SimpleQueue[tuple[Any, Any]],
    timeout: float,
    most_bytes: int | None,
    stop: threading.Event,
) -> None:
    """Work off the queue of tasks with one worker after the other."""
    worker = None
    try:
        while not stop.is_set():
            task = waiting.get_nowait()
            worker = worker or Worker(module)
            try:
                answers.put((task, worker.ask(task, timeout)))
            except WorkerDied as error:
                answers.put((task, error))
                worker.close()
                worker = None
            if worker is not None and most_bytes is not None and worker.memory() > most_bytes:
                worker.close()
                worker = None
    except queue.Empty:
        pass
    except BaseException as error:
        answers.put((None, error))
    finally:
        if worker is not None:
            worker.close()


def serve(answer: Callable[[Any], Any]) -> None:
    """Answer the tasks on standard input until it ends; what they print goes to standard error."""
    lines, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=lines, flush=True)
