"""What the tests of the C++ core share: the plugins, real and fake."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

# A module of the package that ships the plugin, and the plugin's file name.
PLUGINS = {
    "xla_cpu_pjrt": ("xla_plugins.xla_cpu_pjrt", "xla_cpu_pjrt.so"),
    "lammps_jax_pjrt_cpu": ("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so"),
}

# The plugins would log each client's options.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")


def plugin_path(name: str) -> Path:
    """The shared object of an installed plugin."""
    module, file = PLUGINS[name]
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"the package {name} is not installed"
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)), file)


@pytest.fixture(scope="session")
def real_plugins() -> list[Path]:
    """All installed plugins."""
    return [plugin_path(name) for name in sorted(PLUGINS)]


@pytest.fixture(scope="session", params=sorted(PLUGINS))
def plugin(request: pytest.FixtureRequest) -> Path:
    """Each installed plugin in turn."""
    return plugin_path(request.param)


@pytest.fixture(scope="session")
def compile_cpp(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that builds `output` from C++ sources, with the core's include folders."""
    folder = tmp_path_factory.mktemp("cpp")
    header = plugin_path("xla_cpu_pjrt").parent / "include"

    def build(output: str, *arguments: str | Path) -> Path:
        compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
        flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}"]
        command = [compiler, *flags, "-isystem", header, *arguments, "-o", folder / output]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return folder / output

    return build


@pytest.fixture(scope="session")
def fake_plugins(compile_cpp: Callable[..., Path]) -> dict[str, Path]:
    """The variants of fake_plugin.cc: `whole`, `short` (no compile) and `major` (a version off)."""
    variants = {
        "whole": [],
        "short": ["-DFAKE_LAST=PJRT_Client_AddressableDevices"],
        "major": ["-DFAKE_MAJOR=9"],
    }
    source = HERE / "fake_plugin.cc"
    return {
        name: compile_cpp(f"{name}.so", "-shared", "-fPIC", *flags, source)
        for name, flags in variants.items()
    }
