"""Memory, disk, compiler: what is asked when, with a client that counts, and with real PJRT."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401  # the core is linked against its libraries

from torchneuron._C import pjrt
from torchneuron.program import (
    CompileError,
    Compiler,
    DiskCache,
    Dumper,
    Metrics,
    Parts,
    Toolchain,
    find_plugin,
)

ADD = b"""
func.func @main(%a: tensor<4xui8>) -> tensor<4xui8> {
  %sum = stablehlo.add %a, %a : tensor<4xui8>
  return %sum : tensor<4xui8>
}
"""


@dataclass
class Lowered:
    module: bytes = ADD
    rng_offset: int = 4
    roads: dict[str, str] = field(default_factory=lambda: {"aten.add.Tensor": "emitter"})
    metadata: dict[str, object] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)


class Program:
    """What CountingClient compiles: remembers its module and device."""

    def __init__(self, module: bytes, device: int, serialize: bool) -> None:
        self.module, self.device, self._serialize = module, device, serialize

    def serialize(self) -> bytes:
        if not self._serialize:
            raise RuntimeError("PJRT_Executable_Serialize: UNIMPLEMENTED: not here")
        return b"serialized " + self.module

    def cost_analysis(self) -> dict[str, float]:
        return {"flops": 4.0}


class CountingClient:
    """A client whose programs are their modules, to see which call is made when."""

    def __init__(self, serialize: bool = True, seconds: float = 0.0) -> None:
        self.compiled = self.deserialized = 0
        self.serialize, self.seconds = serialize, seconds
        self.refuses = b""

    def compile(self, mlir: bytes, device: int, flags: dict[str, str]) -> Program:
        self.compiled += 1
        time.sleep(self.seconds)
        if mlir == self.refuses:
            raise RuntimeError("PJRT_Client_Compile: INVALID_ARGUMENT: no such op")
        return Program(mlir, device, self.serialize)

    def deserialize(self, serialized: bytes, device: int) -> Program:
        self.deserialized += 1
        if not serialized.startswith(b"serialized "):
            raise RuntimeError("PJRT_Executable_DeserializeAndLoad: INTERNAL: not mine")
        return Program(serialized.removeprefix(b"serialized "), device, self.serialize)


def parts(number: int = 0) -> Parts:
    return Toolchain("neuron", "1", (0, 81), "trn2", "2.13.0").parts(b"%d" % number)


Make = Callable[..., tuple[CountingClient, Compiler, Metrics]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(
        serialize: bool = True, seconds: float = 0.0, disk: bool = True, memory: int = 16
    ) -> tuple[CountingClient, Compiler, Metrics]:
        client, metrics = CountingClient(serialize, seconds), Metrics()
        cache = DiskCache(str(tmp_path / "cache"), 1 << 20) if disk else None
        compiler = Compiler(lambda: client, cache, metrics=metrics, memory_entries=memory)
        return client, compiler, metrics

    return build


def test_compiled_then_memory_then_disk(make: Make) -> None:
    client, compiler, metrics = make()
    lowered = 0

    def lower() -> Lowered:
        nonlocal lowered
        lowered += 1
        return Lowered()

    first = compiler.compile_program(parts(), lower, {"shape": (2, 3)}, 0)
    again = compiler.compile_program(parts(), lower, {"shape": (2, 3)}, 0)
    assert (first.origin, again.origin) == ("compiled", "memory")
    assert first.executable is again.executable

    # Another process: nothing is lowered, and the metadata is that of the first.
    client, compiler, metrics = make()
    loaded = compiler.compile_program(parts(), lower, {}, 0)
    assert loaded.origin == "disk"
    assert loaded.metadata == first.metadata
    assert first.metadata == {
        "shape": [2, 3],
        "rng_offset": 4,
        "roads": {"aten.add.Tensor": "emitter"},
    }
    assert loaded.executable.module == ADD
    assert (lowered, client.compiled, client.deserialized) == (1, 0, 1)
    assert metrics.snapshot()["cache_hits_disk"] == 1


def test_a_second_device_loads_what_the_first_compiled(make: Make) -> None:
    client, compiler, _ = make()
    compiler.compile_program(parts(), ADD, {}, 0)
    second = compiler.compile_program(parts(), ADD, {}, 1)
    assert (second.origin, second.executable.device, client.compiled) == ("disk", 1, 1)


def test_two_devices_at_once_compile_once(make: Make) -> None:
    client, compiler, _ = make(seconds=0.05)
    start = threading.Barrier(4)

    def ask(device: int) -> Any:
        start.wait()
        return compiler.compile_program(parts(), Lowered, {}, device)

    with ThreadPoolExecutor(4) as threads:
        programs = list(threads.map(ask, range(4)))
    assert client.compiled == 1
    assert [program.executable.device for program in programs] == [0, 1, 2, 3]


def test_different_keys_are_different_programs(make: Make) -> None:
    client, compiler, _ = make()
    for number in range(3):
        compiler.compile_program(parts(number), ADD, {}, 0)
    assert client.compiled == 3


def test_two_threads_compile_once(make: Make) -> None:
    client, compiler, metrics = make(seconds=0.05)
    start = threading.Barrier(8)

    def ask(_: int) -> Any:
        start.wait()
        return compiler.compile_program(parts(), Lowered, {}, 0)

    with ThreadPoolExecutor(8) as threads:
        programs = list(threads.map(ask, range(8)))
    assert client.compiled == 1
    assert len({id(program.executable) for program in programs}) == 1
    assert sorted(program.origin for program in programs) == ["compiled"] + ["memory"] * 7
    assert metrics.snapshot()["cache_hits_memory"] == 7


def test_waiting_threads_get_the_error(make: Make) -> None:
    client, compiler, _ = make(seconds=0.05)
    client.refuses = b"bad"
    start = threading.Barrier(4)

    def ask(_: int) -> str:
        start.wait()
        with pytest.raises(CompileError) as caught:
            compiler.compile_program(parts(), b"bad", {}, 0, op="aten.x", signature="f32[2]")
        return str(caught.value)

    with ThreadPoolExecutor(4) as threads:
        texts = set(threads.map(ask, range(4)))
    assert client.compiled == 1
    (text,) = texts
    assert all(word in text for word in ("aten.x", "f32[2]", "no such op", "TORCHNEURON_DUMP"))
    # A failure is not kept.
    client.refuses = b""
    assert compiler.compile_program(parts(), b"bad", {}, 0).origin == "compiled"


def test_an_interrupted_compilation_is_taken_over(make: Make) -> None:
    client, compiler, _ = make()
    entered, release = threading.Event(), threading.Event()

    def interrupted() -> Lowered:
        entered.set()
        release.wait()
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            compiler.compile_program(parts(), interrupted, {}, 0)

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first)
        entered.wait()
        two = threads.submit(compiler.compile_program, parts(), ADD, {}, 0)
        release.set()
        one.result()
        assert two.result().origin == "compiled"
    assert client.compiled == 1


def test_a_program_that_needs_itself_is_an_error(make: Make) -> None:
    _, compiler, _ = make()

    def lower() -> Lowered:
        compiler.compile_program(parts(), ADD, {}, 0)
        return Lowered()

    with pytest.raises(RuntimeError, match="the very program"):
        compiler.compile_program(parts(), lower, {}, 0)


def test_memory_is_bounded_by_use(make: Make) -> None:
    _, compiler, _ = make(disk=False, memory=2)
    for number in (0, 1, 0, 2):
        compiler.compile_program(parts(number), ADD, {}, 0)
    assert compiler.compile_program(parts(0), ADD, {}, 0).origin == "memory"
    assert compiler.compile_program(parts(1), ADD, {}, 0).origin == "compiled"
    compiler.forget()
    assert compiler.compile_program(parts(0), ADD, {}, 0).origin == "compiled"


def test_a_plugin_that_cannot_serialize_caches_in_memory_only(make: Make, tmp_path: Path) -> None:
    _, compiler, _ = make(serialize=False)
    assert compiler.compile_program(parts(), ADD, {}, 0).origin == "compiled"
    assert compiler.compile_program(parts(), ADD, {}, 0).origin == "memory"
    assert "UNIMPLEMENTED" in compiler.serialization_error
    assert not list(tmp_path.rglob("*.neff"))


def test_what_the_plugin_cannot_load_is_compiled_again(make: Make, tmp_path: Path) -> None:
    _, compiler, _ = make()
    compiler.compile_program(parts(), ADD, {}, 0)
    (path,) = tmp_path.rglob("*.neff")
    cache = DiskCache(str(path.parent), 1 << 20)
    neff = cache.get(path.stem)
    assert neff is not None
    cache.put(path.stem, type(neff)(neff.stablehlo, b"another plugin's"))
    _, compiler, metrics = make()
    assert compiler.compile_program(parts(), ADD, {}, 0).origin == "compiled"
    assert metrics.snapshot()["cache_corrupt"] == 1
    compiler.forget()
    assert compiler.compile_program(parts(), ADD, {}, 0).origin == "disk"


def test_a_forked_child_starts_empty(make: Make) -> None:
    _, compiler, _ = make()
    compiler.compile_program(parts(), ADD, {}, 0)
    with compiler._lock:
        child = os.fork()
        if child == 0:
            origin = compiler.compile_program(parts(), ADD, {}, 0).origin
            os._exit(0 if origin == "disk" else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_events_say_why(make: Make) -> None:
    _, compiler, metrics = make()
    for number, rows in enumerate((2, 3)):
        compiler.compile_program(
            parts(number), ADD, {}, 0, op="aten.neg", signature=f"self f32[{rows}, 4]"
        )
    first, second = metrics.snapshot()["compile_events"]
    assert first["reason"] == "first use"
    assert second["reason"] == "self f32[2, 4] became self f32[3, 4]"
    assert second["origin"] == "compiled"


def test_dump(tmp_path: Path) -> None:
    folder: str | None = str(tmp_path / "dump")
    dumper = Dumper(lambda: folder)
    client = CountingClient()
    client.refuses = b"bad"
    compiler = Compiler(lambda: client, metrics=Metrics(), dumper=dumper)
    compiler.compile_program(
        parts(0), ADD, {}, 0, op="aten.add/Tensor", signature="f32[2]", graph=lambda: "graph():"
    )
    with pytest.raises(CompileError):
        compiler.compile_program(parts(1), b"bad", {}, 0, op="two")
    folder = None
    compiler.compile_program(parts(2), ADD, {}, 0, op="three")
    written = sorted((tmp_path / "dump" / str(os.getpid())).iterdir())
    assert [path.name[:5] + path.suffix for path in written] == [
        "0001-.fx",
        "0001-.mlir",
        "0001-.txt",
        "0002-.mlir",
        "0002-.txt",
    ]
    assert written[0].name.startswith("0001-aten.add_Tensor-")
    assert written[0].read_text() == "graph():\n"
    assert written[1].read_bytes() == ADD
    assert "f32[2]" in written[2].read_text()
    assert "signature" in written[2].read_text()


def test_dump_that_cannot_be_written_warns_once(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "file").write_text("")
    dumper = Dumper(lambda: str(tmp_path / "file"))
    compiler = Compiler(CountingClient, metrics=Metrics(), dumper=dumper)
    for number in range(3):
        compiler.compile_program(parts(number), ADD, {}, 0)
    (warning,) = recwarn
    assert "TORCHNEURON_DUMP" in str(warning.message)


def test_real_plugin_from_disk_without_lowering(tmp_path: Path) -> None:
    plugin = find_plugin()
    client = pjrt.Client(plugin.path)
    toolchain = Toolchain.current(
        client.platform_name, client.platform_version, client.api_version, "trn2", plugin.path
    )
    key = toolchain.parts(b"add")
    origins = []
    for _ in range(2):
        compiler = Compiler(lambda: client, DiskCache(str(tmp_path), 1 << 20), metrics=Metrics())
        program = compiler.compile_program(key, Lowered, {}, 0)
        argument = client.buffer(bytes([1, 2, 3, 4]), 4, 6, [4], 0)
        assert program.executable.execute([argument])[0].to_bytes() == bytes([2, 4, 6, 8])
        origins.append(program.origin)
    assert origins == ["compiled", "disk"]
    with pytest.raises(CompileError, match="PJRT_Client_Compile"):
        compiler.compile_program(toolchain.parts(b"bad"), b"garbage", {}, 0, op="bad")


def test_dump_writes_portable_artifacts_as_text(tmp_path: Path) -> None:
    from torch_mlir import ir
    from torch_mlir._mlir_libs import _stablehlo
    from torch_mlir.dialects import torch as torch_dialect

    text = ADD.decode().replace("ui8", "f32")
    with ir.Context() as context:
        torch_dialect.register_dialect(context)
        _stablehlo.register_dialect(context)
        artifact = _stablehlo.serialize_portable_artifact_str(text, "1.0.0")
    Dumper(lambda: str(tmp_path)).write("add", "", "compiled", parts(), None, artifact)
    (path,) = tmp_path.rglob("*.mlir")
    assert "stablehlo.add" in path.read_text()
