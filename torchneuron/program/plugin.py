"""Which PJRT plugin to load: the shared library behind which the compiler and the devices are.

The order of the search:

1. the setting ``plugin``: the path of a .so, the name of an entry point, or a package's name;
2. on a host with Neuron devices, ``libneuronxla``, the plugin of AWS;
3. the packages that announce a plugin by an entry point, group ``xla_plugins`` before
   ``jax_plugins``, by name within a group; the embedded default, XLA:CPU, is found here;
4. ``libneuronxla`` without devices, for compiling off the chip.

No plugin package is imported: those of JAX would import JAX. Nothing here runs at import.
"""

from __future__ import annotations

import glob
import importlib.util
import mmap
import os
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple

from torchneuron.program.errors import PluginNotFoundError
from torchneuron.settings import Settings, settings

_GROUPS = ("xla_plugins", "jax_plugins")
_NEURON = "libneuronxla"
# Extension modules of Python that may lie beside a plugin.
_PYTHON_SUFFIXES = (".cpython-", ".abi3.")


class Plugin(NamedTuple):
    """A plugin found: its library, and where we learnt of it."""

    path: str
    origin: str


def find_plugin(choice: str | None = None) -> Plugin:
    """The plugin to load; ``choice`` defaults to the setting.

    Raises PluginNotFoundError with what to install or set.
    """
    choice = choice or settings.plugin
    if choice:
        return _chosen(choice)
    for plugin in installed_plugins():
        return plugin
    raise PluginNotFoundError(
        "No PJRT plugin is installed: install xla-cpu-pjrt to run on the host CPU or libneuronxla "
        f"on a Trainium host, or set {Settings.plugin.variable} to the path of a plugin's .so."
    )


def client_options(plugin: Plugin, devices: int) -> dict[str, int]:
    """The options of a client of the plugin that shows so many devices.

    A client of the host's CPU shows as many devices as it is told to; others lack the option. It
    starts as many threads as devices, and more threads than cores keep each other from working:
    devices beyond the cores share the client's (twice as fast on 2 cores).
    """
    if "cpu" not in os.path.basename(plugin.path).lower():
        return {}
    return {"cpu_device_count": min(devices, len(os.sched_getaffinity(0)))}


def installed_plugins() -> Iterator[Plugin]:
    """The plugins of installed packages, the one to take first; what is broken is left out."""
    neuron = _of_package(_NEURON, f"package {_NEURON}")
    on_chip = bool(neuron_devices())
    if on_chip:
        yield from neuron
    for point in _entry_points():
        yield from _of_package(point.module, _origin(point))
    if not on_chip:
        yield from neuron


def neuron_devices() -> list[str]:
    """The device nodes of Neuron chips on this host."""
    return sorted(glob.glob("/dev/neuron[0-9]*"))


def _chosen(choice: str) -> Plugin:
    where = f"{Settings.plugin.variable}={choice}"
    if os.sep in choice or choice.endswith(".so"):
        if not os.path.isfile(choice):
            raise PluginNotFoundError(
                f"{where}: there is no such file; give the path of a PJRT plugin's .so or the "
                "name of an installed package."
            )
        return Plugin(os.path.abspath(choice), where)
    for point in _entry_points():
        if _same_name(point.name, choice):
            return Plugin(_library(point.module, where), _origin(point))
    return Plugin(_library(choice.replace("-", "_"), where), where)


def _of_package(module: str, origin: str) -> list[Plugin]:
    try:
        return [Plugin(_library(module, origin), origin)]
    except PluginNotFoundError:
        return []


def _entry_points() -> list[EntryPoint]:
    found = []
    for group in _GROUPS:
        found += sorted(entry_points(group=group), key=lambda point: point.name)
    return found


def _origin(point: EntryPoint) -> str:
    return f"entry point {point.group}:{point.name}"


def _same_name(left: str, right: str) -> bool:
    return left.replace("-", "_").lower() == right.replace("-", "_").lower()


def _library(module: str, origin: str) -> str:
    """The plugin's .so inside the package ``module``."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise PluginNotFoundError(f"{origin}: the package {module} is not installed.")
    if spec.submodule_search_locations:
        roots = [Path(location) for location in spec.submodule_search_locations]
        libraries = [path for root in roots for path in root.rglob("*.so")]
    else:
        libraries = list(Path(spec.origin or ".").parent.glob("*.so"))
    libraries = [
        path for path in libraries if not any(mark in path.name for mark in _PYTHON_SUFFIXES)
    ]
    if len(libraries) > 1:
        libraries = [path for path in libraries if _names_api(path)]
    if len(libraries) != 1:
        names = ", ".join(sorted(path.name for path in libraries)) or "none"
        raise PluginNotFoundError(
            f"{origin}: the package {module} should hold one PJRT plugin, but holds {names}; set "
            f"{Settings.plugin.variable} to the path of the .so."
        )
    return str(libraries[0].resolve())


def _names_api(library: Path) -> bool:
    """Whether the file contains the name of the C API's one entry, ``GetPjrtApi``."""
    with library.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(b"GetPjrtApi\0") >= 0
        except ValueError:  # an empty file cannot be mapped
            return False
