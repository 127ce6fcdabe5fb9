"""The cache key of a program: an ordered list of named hashes, and one hash over them.

The parts, and what each stands for:

    signature   what the caller compiles: operations, shapes, dtypes, views, static arguments
    sources     torchneuron itself: its Python files and its native libraries
    torch       PyTorch's version, whose decompositions are part of the lowering
    compilers   the packages that turn graphs into StableHLO and StableHLO into NEFFs
    plugin      the PJRT plugin: platform, version text, C API version, and its library, since
                builds of XLA:CPU all call their version "cpu"
    host        the processor and its features, for a plugin that compiles for the host
    target      the chip that the program is checked and compiled for
    options     compile options, the Neuron compiler's flags among them

Left out on purpose: the device's index (an executable is compiled for a kind of device and loaded
on one), paths, host names, and environment variables other than those that ``options`` holds.
``sources`` leaves out the command line and the profiler, which have no part in a program.

The parts are kept, so that ``differences`` can say which one made a program compile again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

Parts = tuple[tuple[str, str], ...]

_LEFT_OUT = ("cli", "profiler")
_BUILD_ID = b"\x03\0\0\0GNU\0"  # the note's type and owner
_LIBRARY_END = 1 << 14
_LIBRARY_SAMPLE = 1 << 12
_LIBRARY_SAMPLES = 64
_COMPILERS = ("torch-mlir", "neuronx-cc", "libneuronxla")


def digest(parts: Parts) -> str:
    """The key, 64 hexadecimal digits."""
    return hashlib.sha256(
        "".join(f"{name}\0{value}\n" for name, value in parts).encode()
    ).hexdigest()


def differences(old: Parts, new: Parts) -> tuple[str, ...]:
    """The names of the parts that differ, in the order of ``new``, then those only ``old`` has."""
    before, after = dict(old), dict(new)
    names = dict.fromkeys((*after, *before))
    return tuple(name for name in names if before.get(name) != after.get(name))


@dataclass(frozen=True)
class Toolchain:
    """Everything of a key that is the same for all programs of a client.

    ``platform`` and ``platform_version`` are what the PJRT client calls itself; ``plugin`` stands
    for the library's contents (``library_mark``).
    """

    platform: str
    platform_version: str
    api_version: tuple[int, int]
    target: str
    torch_version: str
    plugin: str = ""
    compilers: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def current(
        cls,
        platform: str,
        platform_version: str,
        api_version: tuple[int, int],
        target: str,
        plugin_path: str,
        options: Mapping[str, str] | None = None,
    ) -> Toolchain:
        """The toolchain of this process, with the versions of what is installed."""
        from torch.version import __version__, git_version

        return cls(
            platform,
            platform_version,
            api_version,
            target,
            plugin=library_mark(Path(plugin_path)).hex(),
            torch_version=f"{__version__} {git_version}",
            compilers=tuple((name, _installed(name)) for name in _COMPILERS),
            options=tuple(sorted((options or {}).items())),
        )

    def parts(self, signature: bytes, options: Mapping[str, str] | None = None) -> Parts:
        """The key of the program with this signature; ``options`` are those of it alone."""
        fixed = self._fixed
        if options:
            fixed += (("program options", _hash(repr(sorted(options.items())))),)
        return (("signature", _hash(signature)), *fixed)

    @cached_property
    def _fixed(self) -> Parts:
        plugin = (self.platform, self.platform_version, self.api_version, self.plugin)
        # XLA:CPU compiles for the very processor it runs on; a home directory may be shared by
        # machines of which some lack its instructions.
        host = host_features() if self.platform == "cpu" else ""
        return (
            ("sources", sources_version()),
            ("torch", _hash(self.torch_version)),
            ("compilers", _hash(repr(self.compilers))),
            ("plugin", _hash(repr(plugin))),
            ("host", _hash(host)),
            ("target", _hash(self.target)),
            ("options", _hash(repr(self.options))),
        )


@cache
def sources_version() -> str:
    """A hash of the installed package, computed at the first call (a few milliseconds)."""
    return hash_sources(Path(__file__).parents[1])


def hash_sources(root: Path) -> str:
    """A hash of the package at ``root``: names and contents, not paths or times.

    Two installations of one version agree, so ranks on several machines can share a cache.
    """
    total = hashlib.sha256()
    for path in sorted(_sources(root)):
        total.update(f"{path.relative_to(root).as_posix()}\0".encode())
        total.update(library_mark(path) if path.suffix == ".so" else path.read_bytes())
    return total.hexdigest()


def _sources(root: Path) -> Iterable[Path]:
    for suffix in ("*.py", "*.so"):
        for path in root.rglob(suffix):
            if path.relative_to(root).parts[0] not in _LEFT_OUT:
                yield path


def library_mark(path: Path) -> bytes:
    """What tells two builds of a native library apart, without reading all of it.

    The linker's build id, a hash of the contents, lies in a note right behind the program headers.
    Without one (plugins of hundreds of megabytes have none) the size, both ends, where the section
    tables lie, and samples between them have to do.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        pieces = [b"%d" % size, file.read(_LIBRARY_END)]
        if _BUILD_ID not in pieces[1]:
            step = max(size // _LIBRARY_SAMPLES, 1)
            for at in range(0, size, step):
                file.seek(at)
                pieces.append(file.read(_LIBRARY_SAMPLE))
            file.seek(max(size - _LIBRARY_END, 0))
            pieces.append(file.read())
    return hashlib.sha256(b"".join(pieces)).digest()


@cache
def host_features() -> str:
    """The processor's model and feature flags, as the kernel lists them for the first core."""
    wanted = ("model name", "flags", "Features", "CPU part")
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in wanted:
                    found.setdefault(name.strip(), value.strip())
                elif not line.strip() and found:
                    break
    except OSError:
        import platform

        return f"{platform.machine()} {platform.processor()}"
    return repr(sorted(found.items()))


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _hash(value: str | bytes) -> str:
    data = value.encode() if isinstance(value, str) else value
    return hashlib.sha256(data).hexdigest()
