"""Runs the C++ tests of the core."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent


def test_core(
    compile_cpp: Callable[..., Path], fake_plugins: dict[str, Path], real_plugins: list[Path]
) -> None:
    sources = sorted(HERE.parents[1].glob("csrc/pjrt/*.cc"))
    program = compile_cpp("core_test", HERE / "core_test.cc", *sources, "-ldl", "-pthread")
    fakes = [fake_plugins[name] for name in ("whole", "short", "major")]
    command = [program, *fakes, *real_plugins]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "core_test: 0 failures" in done.stdout
