"""The safetensors format: named tensors in one file, which other tools read too.

0      u64 length of the header, little endian
8      JSON: {name: {"dtype": "F32", "shape": [..], "data_offsets": [first, last]}}, spaces at
       its end up to a multiple of 8
then   the tensors' elements, dense in row-major order
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from torchneuron.program.errors import NeffError

_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.complex128: "C128",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_LENGTH = struct.Struct("<Q")


class Tensors:
    """Tensors to be written: the size is known before the first byte is."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """TypeError for a dtype that the format has no name for."""
        self._tensors = dict(tensors)
        header, at = {}, 0
        for name, tensor in self._tensors.items():
            if tensor.dtype not in _NAMES:
                raise TypeError(f"{name}: safetensors has no {tensor.dtype}")
            end = at + tensor.numel() * tensor.element_size()
            header[name] = {
                "dtype": _NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [at, end],
            }
            at = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._header = _LENGTH.pack(len(text)) + text
        self._data_bytes = at

    def __len__(self) -> int:
        """The bytes of all of it."""
        return len(self._header) + self._data_bytes

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes, one tensor at a time; tensors may be on any device."""
        yield self._header
        for tensor in self._tensors.values():
            if tensor.numel():
                host = tensor.detach().cpu().contiguous()
                yield host.reshape(-1).view(torch.uint8).numpy().data


def read(data: bytes | memoryview) -> dict[str, torch.Tensor]:
    """The tensors, on the CPU, in the memory of ``data``, which must be writable if they are written.

    Raises NeffError for bytes that are not of this format.
    """
    try:
        (length,) = _LENGTH.unpack_from(data)
        header: dict[str, Any] = json.loads(bytes(data[8 : 8 + length]))
        body = memoryview(data)[8 + length :]
        return {
            name: _tensor(body, item) for name, item in header.items() if name != "__metadata__"
        }
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise NeffError(f"not in the safetensors format ({error!r}).") from error


def _tensor(body: memoryview, item: Mapping[str, Any]) -> torch.Tensor:
    dtype, shape = _DTYPES[item["dtype"]], item["shape"]
    first, last = item["data_offsets"]
    if last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError("a tensor's size is not that of its data")
    if first == last:
        return torch.empty(shape, dtype=dtype)
    # Bytes first: elements need not be aligned in the file.
    flat = torch.frombuffer(body[first:last], dtype=torch.uint8)
    if flat.data_ptr() % dtype.itemsize:
        flat = flat.clone()
    return flat.view(dtype).reshape(shape)
