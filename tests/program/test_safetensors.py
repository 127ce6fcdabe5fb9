"""The safetensors format: written and read, and readable by what knows only the format."""

import json
import struct

import pytest
import torch

from torchneuron.program import NeffError
from torchneuron.program.safetensors import Tensors, read

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


def written(tensors: dict[str, torch.Tensor]) -> bytearray:
    whole = Tensors(tensors)
    data = bytearray().join(whole.chunks())
    assert len(data) == len(whole)
    return data


def test_round_trip_of_every_dtype() -> None:
    tensors = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in DTYPES}
    back = read(memoryview(written(tensors)))
    assert list(back) == list(tensors)
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name].view(torch.uint8), tensor.view(torch.uint8))


def test_the_layout_is_that_of_the_format() -> None:
    data = written({"a": torch.tensor([1.0, 2.0]), "b": torch.zeros(0, 3), "c": torch.tensor(True)})
    (length,) = struct.unpack_from("<Q", data)
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    assert header["a"] == {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert header["b"] == {"dtype": "F32", "shape": [0, 3], "data_offsets": [8, 8]}
    assert header["c"] == {"dtype": "BOOL", "shape": [], "data_offsets": [8, 9]}
    assert struct.unpack_from("<2f", data, 8 + length) == (1.0, 2.0)


def test_views_and_odd_offsets() -> None:
    tensors = {"odd": torch.ones(3, dtype=torch.int8), "t": torch.arange(6.0).reshape(2, 3).t()}
    back = read(memoryview(written(tensors)))
    assert torch.equal(back["t"], tensors["t"])
    assert back["t"].is_contiguous()


def test_tensors_on_the_device() -> None:
    tensor = torch.arange(4.0, device="neuron")
    assert torch.equal(read(memoryview(written({"x": tensor})))["x"], tensor.cpu())


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\2\0\0\0\0\0\0\0[]"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(NeffError, match="not in the safetensors format"):
        read(data)


def test_a_tensor_beyond_its_data_is_refused() -> None:
    with pytest.raises(NeffError, match="size"):
        read(memoryview(written({"x": torch.zeros(4)}).replace(b"[4]", b"[5]")))


def test_a_dtype_without_a_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"x: safetensors has no torch\.bits8"):
        Tensors({"x": torch.empty(2, dtype=torch.bits8)})
