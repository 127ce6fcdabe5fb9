"""Runs the C++ test of the launch queue and of windows, without sanitizers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths, library_paths

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# What the queue needs of csrc/runtime; the rest is what PyTorch asks for.
RUNTIME = ("device", "dtype", "fork", "heap", "queue", "storage", "value")


def test_queue(compile_cpp: Callable[..., Path], real_plugins: list[Path]) -> None:
    # The objects that the extension was linked from (see setup.py): they take minutes to make.
    build = ROOT / "build" / f"{sys.implementation.cache_tag}-torch{torch.__version__}"
    sources = [
        *ROOT.glob("csrc/pjrt/*.cc"),
        *ROOT.glob("csrc/adaptive/*.cpp"),
        *(ROOT / "csrc" / "runtime" / f"{name}.cpp" for name in RUNTIME),
    ]
    objects = [build / path.relative_to(ROOT).with_suffix(".o") for path in sources]
    missing = [path for path in objects if not path.is_file()]
    assert not missing, f"build torchneuron in place first (make build): there is no {missing[0]}"
    includes = [flag for path in include_paths() for flag in ("-isystem", path)]
    libraries = [flag for path in library_paths() for flag in (f"-L{path}", f"-Wl,-rpath,{path}")]
    program = compile_cpp(
        "queue_test", HERE / "queue_test.cc", *objects, *includes, *libraries, "-lc10", "-pthread"
    )
    plugin = next(path for path in real_plugins if path.name == "xla_cpu_pjrt.so")
    done = subprocess.run([program, plugin], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "queue_test: 0 failures" in done.stdout
