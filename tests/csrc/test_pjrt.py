"""The raw PJRT binding, on two independent plugins of different API versions."""

from __future__ import annotations

import threading
from array import array
from pathlib import Path

import pytest
import torch  # noqa: F401  (its libraries are what _C is linked against)

from torchneuron._C import pjrt

F32 = 11  # PJRT_Buffer_Type_F32
ADD = b"""
func.func @main(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.add %a, %b : tensor<8xf32>
  return %0 : tensor<8xf32>
}"""
ADD_DONATED = ADD.replace(b"%a: tensor<8xf32>", b"%a: tensor<8xf32> {tf.aliasing_output = 0 : i32}")
ONE_TO_EIGHT = array("f", range(1, 9))


@pytest.fixture(scope="module")
def client(plugin: Path) -> pjrt.Client:
    return pjrt.Client(str(plugin), {"cpu_device_count": 3})


def buffer(client: pjrt.Client, values: array[float], device: int = 0) -> pjrt.Buffer:
    return client.buffer(values, 4 * len(values), F32, [len(values)], device)


def floats(value: pjrt.Buffer) -> list[float]:
    return list(array("f", value.to_bytes()))


def doubled(values: array[float]) -> list[float]:
    return [2 * value for value in values]


def test_client_tells_what_it_is(client: pjrt.Client) -> None:
    assert client.platform_name == "cpu"
    assert client.platform_version
    assert client.api_version >= (0, 81)
    assert client.device_count == 3
    assert [client.device_id(i) for i in range(3)] == [0, 1, 2]
    assert client.device_kind(0) == "cpu"


def test_plugin_tells_its_stablehlo_versions(plugin: Path) -> None:
    loaded = pjrt.Plugin(str(plugin))
    assert loaded.attributes["stablehlo_current_version"] >= [1, 0, 0]
    assert loaded.missing_entries == []


def test_buffer_round_trip(client: pjrt.Client) -> None:
    value = buffer(client, ONE_TO_EIGHT)
    assert (value.type, value.dims, value.nbytes) == (F32, [8], 32)
    assert value.to_bytes() == ONE_TO_EIGHT.tobytes()
    address, _ = ONE_TO_EIGHT.buffer_info()
    assert client.buffer(address, 32, F32, [8]).to_bytes() == ONE_TO_EIGHT.tobytes()


def test_empty_buffer(client: pjrt.Client) -> None:
    value = client.buffer(b"", 0, F32, [0])
    assert value.nbytes == 0
    assert value.to_bytes() == b""


def test_buffer_refuses_a_wrong_size_or_kind(client: pjrt.Client) -> None:
    with pytest.raises(ValueError, match="has 4 bytes, not 32"):
        client.buffer(b"1234", 32, F32, [8])
    with pytest.raises(TypeError, match="bytes-like"):
        client.buffer([1.0], 4, F32, [1])


def test_execute(client: pjrt.Client) -> None:
    program = client.compile(ADD)
    value = buffer(client, ONE_TO_EIGHT)
    assert program.num_outputs == 1
    (out,) = program.execute([value, value])
    out.wait()
    assert out.ready
    assert floats(out) == doubled(ONE_TO_EIGHT)
    assert not value.donated


def test_donation(client: pjrt.Client) -> None:
    program = client.compile(ADD_DONATED)
    one, other = buffer(client, ONE_TO_EIGHT), buffer(client, ONE_TO_EIGHT)
    program.execute([one, other], non_donatable=[0])
    assert not one.donated
    (out,) = program.execute([one, other])
    assert one.donated
    assert not other.donated
    assert floats(out) == doubled(ONE_TO_EIGHT)
    with pytest.raises(RuntimeError, match="PJRT_.*INVALID_ARGUMENT: .*donated"):
        program.execute([one, other])
    with pytest.raises(RuntimeError, match="donated"):
        one.to_bytes()


def test_serialize(client: pjrt.Client) -> None:
    serialized = client.compile(ADD).serialize()
    value = buffer(client, ONE_TO_EIGHT)
    (out,) = client.deserialize(serialized).execute([value, value])
    assert floats(out) == doubled(ONE_TO_EIGHT)
    with pytest.raises(RuntimeError, match="^PJRT_Executable_DeserializeAndLoad: "):
        client.deserialize(b"no executable")


def test_other_devices(client: pjrt.Client) -> None:
    value = buffer(client, ONE_TO_EIGHT).copy_to(2)
    program = client.compile(ADD, device=2)
    moved = client.deserialize(client.compile(ADD).serialize(), device=2)
    for executable in (program, moved):
        assert executable.device_id == 2
        assert floats(executable.execute([value, value])[0]) == doubled(ONE_TO_EIGHT)
    with pytest.raises(RuntimeError, match="OUT_OF_RANGE: there is no device 3"):
        client.compile(ADD, device=3)


def test_compile_flags(client: pjrt.Client) -> None:
    flags = {"xla_cpu_enable_fast_math": "true", "xla_backend_optimization_level": "1"}
    value = buffer(client, ONE_TO_EIGHT)
    (out,) = client.compile(ADD, flags=flags).execute([value, value])
    assert floats(out) == doubled(ONE_TO_EIGHT)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: .*xla_no_such_flag"):
        client.compile(ADD, flags={"xla_no_such_flag": "1"})


def test_errors_have_the_plugins_text(client: pjrt.Client) -> None:
    with pytest.raises(
        RuntimeError, match=r"^PJRT_Client_Compile: [A-Z_]+: .*custom op 'nonsense'"
    ):
        client.compile(b"nonsense")
    with pytest.raises(RuntimeError, match="^PJRT_LoadedExecutable_Execute: INVALID_ARGUMENT: "):
        client.compile(ADD).execute([buffer(client, ONE_TO_EIGHT)])


def test_executes_on_several_threads(client: pjrt.Client) -> None:
    program = client.compile(ADD)
    value = buffer(client, ONE_TO_EIGHT)
    results: list[list[float]] = []

    def work() -> None:
        for _ in range(50):
            (out,) = program.execute([value, value])
        results.append(floats(out))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [doubled(ONE_TO_EIGHT)] * 4


def test_values_outlive_their_client(plugin: Path) -> None:
    client = pjrt.Client(str(plugin))
    program, value = client.compile(ADD), buffer(client, ONE_TO_EIGHT)
    del client
    (out,) = program.execute([value, value])
    del program, value
    assert floats(out) == doubled(ONE_TO_EIGHT)


def test_missing_or_broken_plugin(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no PJRT plugin at '.*absent\.so': no such file\.$"):
        pjrt.Client(str(tmp_path / "absent.so"))
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no shared object")
    with pytest.raises(RuntimeError, match="FAILED_PRECONDITION: .*cannot be loaded"):
        pjrt.Client(str(broken))


def test_plugin_without_an_entry(fake_plugins: dict[str, Path]) -> None:
    client = pjrt.Client(str(fake_plugins["short"]))
    # The first function that a compilation needs and that stands past this table's end.
    expected = "^PJRT_Device_GetDescription: UNIMPLEMENTED: .*does not offer"
    with pytest.raises(RuntimeError, match=expected):
        client.compile(ADD)
    missing = pjrt.Plugin(str(fake_plugins["whole"])).missing_entries
    assert "PJRT_Buffer_UnsafePointer" in missing
    assert "PJRT_Client_Compile" not in missing


def test_plugin_of_another_major_version(fake_plugins: dict[str, Path]) -> None:
    with pytest.raises(RuntimeError, match=r"has API version 9\.\d+; torchneuron was built for"):
        pjrt.Plugin(str(fake_plugins["major"]))
