"""Writes to blocks through views become writes to what is viewed, where that is the same."""

import pytest
import torch

from torchneuron.lowering.builder import Builder, Val

SHAPE = (2, 1, 8, 128, 32)


def written_through_view(place: int, length: int = 128) -> tuple[Val, Val, Val, Val]:
    """(buffer, place in the view, the view with a row written, buffer with the view written at ``place``)"""
    b = Builder()
    x, at = Val("%s0", torch.float32, SHAPE), Val("%n0", torch.int64, ())
    row = Val("%s1", torch.float32, (1, 8, 1, 32))
    part = b.slice(x, [1, 0, 0, 0, 0], [2, 1, 8, length, 32])
    view = b.squeeze(part, 0)
    wanted = b.full((), True, torch.bool)
    changed = b.write_block(view, row, [0, 0, at, 0], wanted, lambda _old, new: new)
    whole = b.dynamic_update_slice(x, b.unsqueeze(changed, 0), [place, 0, 0, 0, 0])
    return x, at, changed, whole


def test_a_write_through_a_view_is_one_to_what_it_shows() -> None:
    x, at, _, whole = written_through_view(1)
    assert whole.written is not None
    assert whole.written.target is x
    assert whole.written.block.shape == (1, 1, 8, 1, 32)
    assert whole.written.starts == (1, 0, 0, at, 0)


@pytest.mark.parametrize(
    ("place", "length"), [(0, 128), (1, 64)], ids=["elsewhere", "a start that needs clamping"]
)
def test_other_writes_stay_as_they_are(place: int, length: int) -> None:
    _, _, changed, whole = written_through_view(place, length)
    assert whole.written is not None
    assert whole.written.block.shape == (1, 1, 8, length, 32)
    assert changed.written is not None
    assert changed.written.block.shape == (1, 8, 1, 32)
