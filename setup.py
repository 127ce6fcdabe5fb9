"""Builds torchneuron._C against the torch that is installed where torchneuron will be used.

Everything else about the package stands in pyproject.toml.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
# The package that is installed may be an older one, whose core does not fit these sources: PyTorch
# must not load it here.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
PJRT_HEADER = Path("xla_plugins", "xla_cpu_pjrt", "include", "pjrt_c_api.h")


def see_installed_packages() -> None:
    """Make the environment's own packages importable under pip's build isolation.

    A C++ extension of torch only works with the torch it was built against, so that the build must
    use the installed one and no copy made for the build. The isolated interpreter does not search
    the environment's site-packages but still knows where they are.
    """
    if importlib.util.find_spec("torch") is None:
        for name in ("purelib", "platlib"):
            path = sysconfig.get_path(name)
            if path not in sys.path:
                sys.path.append(path)
    if importlib.util.find_spec("torch") is None:
        sys.exit(
            "torchneuron is built against the installed PyTorch, and there is none: "
            "run `pip install torch==2.13.0` first."
        )


def pjrt_include_dir() -> str:
    """The folder of `pjrt_c_api.h`, from the package xla-cpu-pjrt, installed or built with."""
    for entry in [*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]:
        header = Path(entry or ".", PJRT_HEADER)
        if header.is_file():
            return str(header.parent)
    sys.exit(
        "torchneuron is built with the PJRT header of the package xla-cpu-pjrt, which is missing: "
        "run `pip install xla-cpu-pjrt==0.0.1` first."
    )


def sources() -> list[str]:
    """Every C++ source under csrc, relative to the project as setuptools wants them."""
    found = [*ROOT.glob("csrc/**/*.cpp"), *ROOT.glob("csrc/**/*.cc")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def require_python_headers() -> None:
    """Say how to get `Python.h` where the distribution packs it apart, as Debian does."""
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        sys.exit(
            "torchneuron is built with the headers of Python, which are missing: "
            "install them first (Debian and Ubuntu: `apt-get install python3-dev`)."
        )


see_installed_packages()
require_python_headers()

import torch
from torch.utils.cpp_extension import (
    BuildExtension,
    CppExtension,
    include_paths,
)


class Build(BuildExtension):
    """Keeps the object files between builds, also those that pip starts.

    The folder's name tells what they depend on and ninja does not see: it follows no system header.
    """

    def finalize_options(self) -> None:
        """Fix the folder of the object files."""
        super().finalize_options()
        tag = f"{sys.implementation.cache_tag}-torch{torch.__version__}"
        self.build_temp = str(ROOT / "build" / tag)


# As system folders their headers raise none of the warnings that are errors in our own code.
system_includes = [
    flag for path in [*include_paths(), pjrt_include_dir()] for flag in ("-isystem", path)
]

os.chdir(ROOT)
setup(
    ext_modules=[
        CppExtension(
            "torchneuron._C",
            sources(),
            include_dirs=[str(ROOT / "csrc")],
            extra_compile_args=[
                "-std=c++20",
                "-O2",
                "-g0",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                "-Werror",
                *system_includes,
            ],
            extra_link_args=["-Wl,-z,now"],
        )
    ],
    cmdclass={"build_ext": Build},
)
