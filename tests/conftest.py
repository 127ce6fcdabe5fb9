"""What all tests share: one cache of compiled programs, and Python in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

ROOT = Path(__file__).parents[1]

# Compiled programs are shared by the workers of a run and by later runs: the keys tell whether they
# still fit. Set before anything imports torch, and inherited by the processes that tests start.
os.environ.setdefault("TORCHNEURON_CACHE_DIR", str(ROOT / "build" / "test-programs"))
# PyTorch's own cache of graphs begins empty in each run, for what is told only while a graph is
# compiled; the run's workers share it.
if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
    _graphs = tempfile.TemporaryDirectory(prefix="torchneuron-test-graphs-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = _graphs.name


class RunPython(Protocol):
    """Runs a script in a new interpreter."""

    def __call__(
        self, script: str, *, check: bool = True, timeout: float = 120, **variables: str | None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``script`` with environment ``variables`` (None unsets one); check its exit code."""


@pytest.fixture(scope="session")
def run_python() -> RunPython:
    """A function that runs a script in a new interpreter and gives back its output."""

    def run(
        script: str, *, check: bool = True, timeout: float = 120, **variables: str | None
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **{k: v for k, v in variables.items() if v is not None}}
        for name, value in variables.items():
            if value is None:
                environment.pop(name, None)
        done = subprocess.run(
            [sys.executable, "-P", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="session", autouse=True)
def adaptively() -> Iterator[None]:
    """With ``TORCHNEURON_TEST_WINDOWS``, whatever runs twice runs as windows the second time."""
    if not os.environ.get("TORCHNEURON_TEST_WINDOWS"):
        yield
        return
    from torchneuron import _C, device
    from torchneuron.settings import settings

    settings.eager = "adaptive"
    _C.set_window_tuning(sightings=1, min_steps=2, max_windows=100_000, wait=True, trials=0)
    yield
    metrics = device.metrics()
    assert metrics["windows_run"] > 0
    print(f"\n{metrics['ops_in_windows']} operations in {metrics['windows_run']} windows")
