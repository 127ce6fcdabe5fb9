"""The NEFF container: layout, round trip, and that no damage goes unnoticed."""

import io
import json
import struct
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchneuron.program import Neff, NeffError, neff

SMALL = Neff(
    stablehlo=b"module",
    executable=bytes(range(256)) * 3,
    name="aten.add.Tensor",
    interface={"inputs": [{"dtype": "f32", "sizes": [2, 3]}]},
    metadata={"rng_offset": 4, "nested": {"a": [1, 2.5, None, True]}},
    cost={"flops": 6.0},
)


def test_round_trip() -> None:
    assert Neff.from_bytes(SMALL.to_bytes()) == SMALL


def test_the_same_program_gives_the_same_bytes() -> None:
    other = Neff(**{name: getattr(SMALL, name) for name in SMALL.__dataclass_fields__})
    assert other.to_bytes() == SMALL.to_bytes()


def test_documented_header() -> None:
    data = SMALL.to_bytes()
    pkg_version, header_size, data_size = struct.unpack_from("<QQQ", data)
    assert (pkg_version, header_size) == (1, 1024)
    assert len(data) == 1024 + data_size
    assert data[40:51] == b"torchneuron"
    assert data[220:476].rstrip(b"\0") == b"aten.add.Tensor"
    assert struct.unpack_from("<I", data, 552) == (1,)  # lnc_size
    assert data[556:1024] == bytes(468)


def test_generic_tools_can_read_the_payload() -> None:
    with tarfile.open(fileobj=io.BytesIO(SMALL.to_bytes()[1024:])) as archive:
        members = {}
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            members[member.name] = file.read()
    assert list(members) == ["neff.json", "stablehlo.mlirbc", "executable.pjrt", "cost.json"]
    assert members["executable.pjrt"] == SMALL.executable
    assert json.loads(members["neff.json"])["metadata"] == SMALL.metadata


@settings(deadline=None, max_examples=50)
@given(
    stablehlo=st.binary(max_size=2000),
    executable=st.binary(max_size=2000),
    name=st.text(max_size=300),
    metadata=st.dictionaries(
        st.text(max_size=5), st.integers() | st.text(max_size=5) | st.lists(st.booleans())
    ),
)
def test_any_content_round_trips(
    stablehlo: bytes, executable: bytes, name: str, metadata: dict[str, object]
) -> None:
    neff = Neff(stablehlo, executable, name.replace("\0", ""), {}, metadata)
    read = Neff.from_bytes(neff.to_bytes())
    assert (read.stablehlo, read.executable, read.metadata) == (stablehlo, executable, metadata)
    assert neff.name.startswith(read.name)


DATA = SMALL.to_bytes()


@settings(deadline=None)
@given(length=st.integers(0, len(DATA) - 1))
def test_truncated(length: int) -> None:
    with pytest.raises(NeffError):
        Neff.from_bytes(DATA[:length])


@settings(deadline=None)
@given(at=st.integers(0, len(DATA) - 1), flip=st.integers(1, 255))
def test_any_flipped_byte_is_noticed(at: int, flip: int) -> None:
    damaged = bytearray(DATA)
    damaged[at] ^= flip
    with pytest.raises(NeffError):
        Neff.from_bytes(bytes(damaged))


@pytest.mark.parametrize("data", [b"", b"\0" * 2048, b"x" * 5000, DATA + b"\0"])
def test_what_we_did_not_write_is_refused(data: bytes) -> None:
    with pytest.raises(NeffError):
        Neff.from_bytes(data)


def test_metadata_must_be_json() -> None:
    with pytest.raises(TypeError):
        Neff(b"", b"", metadata={"a": object()}).to_bytes()


def test_further_members() -> None:
    members = {"weights": bytes(range(200)) * 5, "empty": b""}
    data = Neff(b"module", b"executable", members=members).to_bytes()
    back = Neff.from_bytes(memoryview(data))
    assert {name: bytes(member) for name, member in back.members.items()} == members
    assert isinstance(back.members["weights"], memoryview)
    with tarfile.open(fileobj=io.BytesIO(data[1024:])) as archive:
        assert archive.getnames()[-2:] == ["weights", "empty"]


def test_a_member_that_is_made_while_it_is_written() -> None:
    class Counting:
        def __len__(self) -> int:
            return 6

        def chunks(self) -> Iterator[bytes]:
            yield from (b"ab", b"cdef")

    data = Neff(b"", b"", members={"letters": Counting()}).to_bytes()
    assert bytes(Neff.from_bytes(data).members["letters"]) == b"abcdef"


def test_a_size_beyond_eight_gibibytes_is_read() -> None:
    info = tarfile.TarInfo("large")
    info.size = 9 << 30
    field = info.tobuf(format=tarfile.GNU_FORMAT)[124:136]
    assert neff._size(field) == 9 << 30
