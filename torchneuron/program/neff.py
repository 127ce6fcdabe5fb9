"""The NEFF container: what a compiled program is on disk.

The header is the documented one of AWS Neuron (1024 bytes, little endian), the payload is an
uncompressed tar, so generic tools can list and unpack it:

    0     u64 pkg_version = 1 (the hash is a SHA-256)   204   u8 uuid[16]
    8     u64 header_size = 1024                        220   char name[256]
    16    u64 data_size, of the payload                 476   u32 requested_tpb_count
    24    u64 neff_version_major, u64 minor             480   u8 tpb_per_node[64]
    40    u8 build_version[128]                         544   u64 feature_bits
    168   u32 num_tpb                                   552   u32 lnc_size
    172   u8 hash[32], of the payload                   556   zeros up to 1024

    neff.json          the interface (inputs and outputs) and the metadata
    stablehlo.mlirbc   the StableHLO portable artifact the program was compiled from
    executable.pjrt    the PJRT plugin's serialized executable
    cost.json          the cost summary
    ...                further members, such as an exported program's weights

``build_version`` starts with ``torchneuron``: that is how we know our files from AWS's, whose
device instructions only the Neuron runtime can load. The uuid is derived from the rest of the
header, which holds the payload's hash, so a change of any byte of the file is noticed.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

from torchneuron.program.errors import NeffError

_HEADER = struct.Struct("<QQQQQ128sI32s16s256sI64sQI468x")
_PKG_VERSION = 1
_VERSION = (1, 0)
_BUILD = b"torchneuron neff 1"
_UUID = slice(204, 220)
_BLOCK = 512
# From here on a size does not fit into the octal digits of a plain tar.
_USTAR_SIZE = 8 << 30

_INTERFACE = "neff.json"
_STABLEHLO = "stablehlo.mlirbc"
_EXECUTABLE = "executable.pjrt"
_COST = "cost.json"
_FIXED = (_INTERFACE, _STABLEHLO, _EXECUTABLE, _COST)


class Chunked(Protocol):
    """A member that is made while it is written."""

    def __len__(self) -> int:
        """Its size in bytes."""

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Its bytes in order."""


Member = bytes | memoryview | Chunked


@dataclass(frozen=True, slots=True)
class Neff:
    """A compiled program and what is needed to run it.

    ``interface``, ``metadata`` and ``cost`` must be JSON: they come back as JSON gives them, so
    tuples as lists and keys as strings. ``members`` are further members by name; those read from a
    memoryview are memoryviews into it.
    """

    stablehlo: bytes
    executable: bytes
    name: str = ""
    interface: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    members: Mapping[str, Member] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The file. The same program always gives the same bytes."""
        file = io.BytesIO()
        self.write(file)
        return file.getvalue()

    def write(self, file: BinaryIO) -> None:
        """Write the file from the start of ``file``, without a copy of it in memory."""
        described = {"interface": self.interface, "metadata": self.metadata}
        members: dict[str, Member] = {
            _INTERFACE: _json(described),
            _STABLEHLO: self.stablehlo,
            _EXECUTABLE: self.executable,
            _COST: _json(self.cost),
            **self.members,
        }
        file.write(bytes(_HEADER.size))
        size, checksum = _pack(members, file)
        file.seek(0)
        file.write(_header(self.name, size, checksum))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Neff:
        """Read a file; NeffError if it is not one that ``to_bytes`` made, down to the last byte."""
        name, payload = _checked(data)
        members = _unpack(payload)
        try:
            described = json.loads(bytes(members[_INTERFACE]))
            return cls(
                stablehlo=bytes(members[_STABLEHLO]),
                executable=bytes(members[_EXECUTABLE]),
                name=name,
                interface=described["interface"],
                metadata=described["metadata"],
                cost=json.loads(bytes(members[_COST])),
                members={name: members[name] for name in members if name not in _FIXED},
            )
        except (KeyError, ValueError, TypeError) as error:
            raise NeffError(f"NEFF: a member is missing or malformed ({error!r}).") from error


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _header(name: str, size: int, checksum: bytes) -> bytes:
    # A long name is cut where the field ends, but not inside a character.
    short = name.encode()[:255].decode(errors="ignore").encode()
    header = bytearray(
        _HEADER.pack(
            _PKG_VERSION,
            _HEADER.size,
            size,
            *_VERSION,
            _BUILD,
            1,  # num_tpb
            checksum,
            bytes(16),
            short,
            1,  # requested_tpb_count
            b"\x01",
            0,  # feature_bits
            1,  # lnc_size
        )
    )
    header[_UUID] = hashlib.sha256(header).digest()[:16]
    return bytes(header)


def _checked(data: bytes | memoryview) -> tuple[str, memoryview]:
    """The name and the payload of a file whose every byte has been checked."""
    if len(data) < _HEADER.size:
        raise NeffError(f"NEFF: {len(data)} bytes are less than a header.")
    fields = _HEADER.unpack_from(data)
    pkg_version, header_size, data_size, *version, build = fields[:6]
    if build.rstrip(b"\0") != _BUILD or (pkg_version, header_size) != (_PKG_VERSION, _HEADER.size):
        raise NeffError("NEFF: not written by this version of torchneuron.")
    if tuple(version) != _VERSION:
        raise NeffError(f"NEFF: format version {version} is not {list(_VERSION)}.")
    if len(data) != _HEADER.size + data_size:
        missing = _HEADER.size + data_size - len(data)
        raise NeffError(f"NEFF: truncated or appended to ({missing} bytes missing).")
    header = bytearray(data[: _HEADER.size])
    header[_UUID] = bytes(16)
    payload = memoryview(data)[_HEADER.size :]
    if (
        hashlib.sha256(header).digest()[:16] != data[_UUID]
        or hashlib.sha256(payload).digest() != fields[7]
    ):
        raise NeffError("NEFF: altered since it was written (checksum).")
    return fields[9].rstrip(b"\0").decode(errors="replace"), payload


def _pack(members: Mapping[str, Member], file: BinaryIO) -> tuple[int, bytes]:
    """Write a tar of ``members``; its size and its SHA-256."""
    checksum, size = hashlib.sha256(), 0

    def put(data: bytes | memoryview) -> None:
        nonlocal size
        file.write(data)
        checksum.update(data)
        size += len(data)

    for name, data in members.items():
        info = tarfile.TarInfo(name)
        info.size = len(data)
        large = info.size >= _USTAR_SIZE
        put(info.tobuf(format=tarfile.GNU_FORMAT if large else tarfile.USTAR_FORMAT))
        for chunk in (data,) if isinstance(data, bytes | memoryview) else data.chunks():
            put(chunk)
        put(bytes(-info.size % _BLOCK))
    # Two empty blocks are a tar's end; tar writes whole records.
    put(bytes(2 * _BLOCK))
    put(bytes(-size % tarfile.RECORDSIZE))
    return size, checksum.digest()


def _unpack(payload: memoryview) -> dict[str, memoryview]:
    """The members, without copying.

    A loop over the blocks instead of tarfile, which takes longer (0.4 ms) than all the rest of a
    cache hit. It need not be as tolerant: the checksum says that ``_pack`` made these bytes.
    """
    members = {}
    at = 0
    try:
        while payload[at]:
            size = _size(bytes(payload[at + 124 : at + 136]))
            name = bytes(payload[at : at + 100]).rstrip(b"\0").decode()
            at += _BLOCK
            members[name] = payload[at : at + size]
            at += -(-size // _BLOCK) * _BLOCK
    except (IndexError, ValueError) as error:
        raise NeffError("NEFF: the payload is not a tar.") from error
    return members


def _size(digits: bytes) -> int:
    """A tar's size field: octal, or binary behind a marked first byte."""
    return int.from_bytes(digits[1:], "big") if digits[0] & 0x80 else int(digits[:11], 8)
