"""The compiling process: what it loads, and how little it asks of the processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchneuron.adaptive import governor, service
from torchneuron.adaptive.service import Worker
from torchneuron.lowering import mlir
from torchneuron.lowering.window import Fused, Stretch

MODULE = """
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = stablehlo.add %x, %x : tensor<3xf32>
  return %y : tensor<3xf32>
}
"""


def stretch() -> Stretch:
    """Two additions, one after the other."""
    return Stretch((mlir.build(MODULE).artifact,), ((0, ((-1, 0),)), (0, ((0, 0),))), 1, ((1, 0),))


def test_it_fuses_and_compiles() -> None:
    worker = Worker()
    try:
        fused = worker.ask("fuse", stretch())
        assert isinstance(fused, Fused)
        assert worker.ask("compile", fused.module, {})
        with pytest.raises(service.WorkerError, match="parse"):
            worker.ask("compile", b"nonsense", {})
    finally:
        worker.end()


def test_it_does_without_pytorch() -> None:
    script = (
        "import sys, runpy\n"
        f"worker = runpy.run_path({service._WORKER!r})\n"
        "worker['_without_pytorch']()\n"
        "worker['_load_mlir']()\n"
        "import torchneuron.lowering.window, torchneuron.adaptive.governor\n"
        "from torchneuron.program.plugin import find_plugin\n"
        "client = worker['_client'](find_plugin().path, ())\n"
        "print('torch' in sys.modules, client)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.startswith("False <")


def test_a_starved_worker_starts_anew_outside_of_the_idle_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        "import os, runpy, sys\n"
        f"if sys.argv[4] == 'meek': os._exit({governor.STARVED})\n"
        f"sys.argv[0] = {service._WORKER!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    monkeypatch.setattr(service, "_WORKER", str(script))
    worker = Worker()
    try:
        assert isinstance(worker.ask("fuse", stretch()), Fused)
    finally:
        worker.end()


def test_a_starved_child_leaves_the_idle_class() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        os.sched_setscheduler(child.pid, os.SCHED_IDLE, os.sched_param(0))
        program = (
            "import sys; from torchneuron.adaptive.governor import Governor;"
            "Governor(int(sys.argv[1]), 0, True)._lift()"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program, str(child.pid)], timeout=120
        ).returncode
        if ended == governor.STARVED:  # the system does not allow it
            assert child.wait(timeout=10) != 0
        else:
            assert ended == 0
            assert os.sched_getscheduler(child.pid) == os.SCHED_OTHER
    finally:
        child.kill()
        child.wait()


def test_the_governor_ends_with_its_child() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "sum(range(3_000_000))"])
    governor.Governor(child.pid, os.getpid(), meek=True).run()
    assert child.wait() == 0
