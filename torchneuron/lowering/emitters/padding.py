"""Padding by reflection and replication, and the gradients."""

from collections.abc import Callable, Sequence
from typing import Any

from torchneuron.lowering import resampling
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.registry import emitter

# The source of a position that may lie outside 0 .. size - 1.
Source = Callable[[int, int], int]


def _reflect(position: int, size: int) -> int:
    """Mirrored at the first and the last element, which are not repeated."""
    if position < 0:
        return -position
    return position if position < size else 2 * (size - 1) - position


def _replicate(position: int, size: int) -> int:
    return min(max(position, 0), size - 1)


def _maps(
    shape: Sequence[int], padding: Sequence[int], source: Source
) -> list[tuple[int, resampling.Rows]]:
    """(dimension, map) of each padded dimension; ``padding`` starts at the last one, low before high."""
    result = []
    for i in range(len(padding) // 2):
        dim, low, high = len(shape) - 1 - i, padding[2 * i], padding[2 * i + 1]
        columns = [source(position, shape[dim]) for position in range(-low, shape[dim] + high)]
        result.append((dim, resampling.Rows.picks(columns, shape[dim])))
    return result


def _register(kind: str, rank: int, source: Source) -> None:
    @emitter(f"aten.{kind}_pad{rank}d")
    def pad(b: Builder, out: Any, self: Val, padding: Sequence[int]) -> Val:
        if 0 in shape_of(out):
            return b.full(shape_of(out), 0, out.dtype)
        value = self
        for dim, rows in _maps(self.shape, padding, source):
            value = resampling.apply(b, value, dim, rows)
        return value

    @emitter(f"aten.{kind}_pad{rank}d_backward")
    def pad_backward(
        b: Builder, out: Any, grad_output: Val, self: Val, padding: Sequence[int]
    ) -> Val:
        if grad_output.numel == 0:
            return b.full(shape_of(out), 0, out.dtype)
        value = b.convert(grad_output, opmath(out.dtype))
        for dim, rows in _maps(self.shape, padding, source):
            value = resampling.apply(b, value, dim, rows.transposed())
        return finish(b, value, out)


for _rank in (1, 2, 3):
    _register("reflection", _rank, _reflect)
    _register("replication", _rank, _replicate)
