"""Which plugin is found, and what is said when none is."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import torchneuron.program.plugin as search
from torchneuron.program import PluginNotFoundError, find_plugin, installed_plugins

LIBRARY = b"\x7fELF...\0GetPjrtApi\0..."


class World:
    """Packages in a folder on sys.path, and the entry points and devices there are."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.points: list[EntryPoint] = []
        self.devices: list[str] = []
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(search, "entry_points", self._entry_points)
        monkeypatch.setattr(search, "neuron_devices", lambda: self.devices)

    def _entry_points(self, group: str) -> list[EntryPoint]:
        return [point for point in self.points if point.group == group]

    def package(self, name: str, **files: bytes) -> Path:
        folder = self.folder.joinpath(*name.split("."))
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('a plugin must not be imported')")
        for file, content in files.items():
            (folder / f"{file}.so").write_bytes(content)
        return folder

    def announce(self, group: str, name: str, module: str) -> None:
        self.points.append(EntryPoint(name, module, group))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_path(world: World) -> None:
    library = world.package("one", plug=LIBRARY) / "plug.so"
    assert find_plugin(str(library)).path == str(library)
    with pytest.raises(PluginNotFoundError, match=r"TORCHNEURON_PLUGIN=/no/such\.so: there is no"):
        find_plugin("/no/such.so")


def test_a_package_by_any_spelling(world: World) -> None:
    folder = world.package("my_plugin", pjrt_plugin=LIBRARY)
    assert find_plugin("my_plugin").path == find_plugin("my-plugin").path
    assert find_plugin("my_plugin").path == str(folder / "pjrt_plugin.so")
    assert "my_plugin" not in sys.modules
    with pytest.raises(PluginNotFoundError, match="the package no_such is not installed"):
        find_plugin("no_such")


def test_an_entry_point_by_name(world: World) -> None:
    folder = world.package("xla_parts.cpu", plug=LIBRARY)
    world.announce("xla_plugins", "xla_cpu", "xla_parts.cpu")
    found = find_plugin("xla-cpu")
    assert found == (str(folder / "plug.so"), "entry point xla_plugins:xla_cpu")


def test_order_of_the_search(world: World) -> None:
    world.package("libneuronxla", libneuronpjrt=LIBRARY)
    for name in ("jax_one", "xla_two", "xla_one", "broken"):
        world.package(name, **({} if name == "broken" else {name: LIBRARY}))
    world.announce("jax_plugins", "jax_one", "jax_one")
    world.announce("xla_plugins", "xla_two", "xla_two")
    world.announce("xla_plugins", "xla_one", "xla_one:initialize")
    world.announce("xla_plugins", "a_broken", "broken")
    world.announce("xla_plugins", "gone", "gone.away")

    def names() -> list[str]:
        return [Path(plugin.path).stem for plugin in installed_plugins()]

    assert names() == ["xla_one", "xla_two", "jax_one", "libneuronpjrt"]
    assert Path(find_plugin().path).stem == "xla_one"
    world.devices = ["/dev/neuron0"]
    assert names() == ["libneuronpjrt", "xla_one", "xla_two", "jax_one"]


def test_extension_modules_and_helper_libraries_are_not_plugins(world: World) -> None:
    files = {"native.cpython-311-x86_64-linux-gnu": LIBRARY, "libhelper": b"\x7fELF", "empty": b""}
    folder = world.package("mixed", plug=LIBRARY, **files)
    assert find_plugin("mixed").path == str(folder / "plug.so")


def test_an_ambiguous_package_names_what_it_holds(world: World) -> None:
    world.package("two", a=LIBRARY, b=LIBRARY)
    with pytest.raises(PluginNotFoundError, match=r"holds a\.so, b\.so; set TORCHNEURON_PLUGIN"):
        find_plugin("two")
    world.package("none")
    with pytest.raises(PluginNotFoundError, match="holds none"):
        find_plugin("none")


def test_nothing_installed_says_what_to_install(world: World) -> None:
    with pytest.raises(PluginNotFoundError) as caught:
        find_plugin()
    for word in ("xla-cpu-pjrt", "libneuronxla", "TORCHNEURON_PLUGIN"):
        assert word in str(caught.value)


def test_the_embedded_default_is_found() -> None:
    assert Path(find_plugin("xla-cpu-pjrt").path).is_file()
