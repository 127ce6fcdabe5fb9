"""The cache key: what changes it, what does not, and which part it was."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from torchneuron.program.key import (
    Toolchain,
    differences,
    digest,
    hash_sources,
    host_features,
    library_mark,
    sources_version,
)

BASE = Toolchain("cpu", "cpu", (0, 81), "trn2", "2.13.0", "so", (("torch-mlir", "1"),), ())


def test_same_for_the_same() -> None:
    again = Toolchain("cpu", "cpu", (0, 81), "trn2", "2.13.0", "so", (("torch-mlir", "1"),), ())
    assert BASE.parts(b"x") == again.parts(b"x")
    key = digest(BASE.parts(b"x"))
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"platform": "neuron"}, "plugin"),
        ({"platform_version": "cpu 2"}, "plugin"),
        ({"api_version": (0, 82)}, "plugin"),
        ({"plugin": "other so"}, "plugin"),
        ({"target": "trn3"}, "target"),
        ({"torch_version": "2.14.0"}, "torch"),
        ({"compilers": (("torch-mlir", "2"),)}, "compilers"),
        ({"options": (("a", "b"),)}, "options"),
    ],
)
def test_every_part_counts_and_is_named(changed: dict[str, object], part: str) -> None:
    before = BASE.parts(b"x")
    after = replace(BASE, **changed).parts(b"x")  # type: ignore[arg-type]
    assert digest(before) != digest(after)
    # Another platform is another host's business too.
    assert part in differences(before, after)
    assert set(differences(before, after)) <= {part, "host"}


def test_signature_and_options_of_one_program() -> None:
    base = BASE.parts(b"x")
    assert differences(base, BASE.parts(b"y")) == ("signature",)
    assert differences(base, BASE.parts(b"x", {"a": "1"})) == ("program options",)
    one, two = BASE.parts(b"x", {"a": "1", "b": "2"}), BASE.parts(b"x", {"b": "2", "a": "1"})
    assert one == two
    assert differences(base, base) == ()


def test_parts_cannot_run_into_each_other() -> None:
    assert digest((("a", "bc"),)) != digest((("ab", "c"),))
    assert digest((("a", "b"), ("c", "d"))) != digest((("c", "d"), ("a", "b")))


def test_sources_are_names_and_contents(tmp_path: Path) -> None:
    first = tmp_path / "first"
    (first / "lowering").mkdir(parents=True)
    (first / "cli").mkdir()
    (first / "lowering" / "a.py").write_text("x = 1")
    (first / "cli" / "b.py").write_text("x = 1")
    (first / "_C.so").write_bytes(b"native")
    base = hash_sources(first)
    # Another place and another time are the same sources.
    assert hash_sources(Path(shutil.copytree(first, tmp_path / "second"))) == base
    (first / "cli" / "b.py").write_text("x = 2")
    assert hash_sources(first) == base
    (first / "lowering" / "a.py").write_text("x = 2")
    changed = hash_sources(first)
    assert changed != base
    (first / "_C.so").write_bytes(b"Native")
    assert hash_sources(first) != changed


def test_a_library_is_known_by_build_id_or_contents(tmp_path: Path) -> None:
    library = tmp_path / "a.so"
    content = bytearray(1 << 20)
    library.write_bytes(content)
    base = library_mark(library)
    for at in (0, len(content) // 2, len(content) - 1):
        content[at] = 1
        library.write_bytes(content)
        assert library_mark(library) != base
        content[at] = 0
    content[600:608] = b"\x03\0\0\0GNU\0"
    library.write_bytes(content)
    with_id = library_mark(library)
    content[608] = 7  # the id itself
    library.write_bytes(content)
    assert library_mark(library) != with_id


def test_this_process() -> None:
    assert sources_version() == sources_version()
    assert len(sources_version()) == 64
    assert host_features()


def test_current_toolchain(tmp_path: Path) -> None:
    (tmp_path / "plugin.so").write_bytes(b"so")
    current = Toolchain.current(
        "cpu", "cpu", (0, 81), "trn2", str(tmp_path / "plugin.so"), {"b": "2", "a": "1"}
    )
    assert current.options == (("a", "1"), ("b", "2"))
    assert current.torch_version.startswith("2.")
    assert dict(current.compilers)["torch-mlir"]
