"""Writes to blocks, through views as well, so that XLA can do them in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from torchneuron.lowering.hlo.control import Control
from torchneuron.lowering.hlo.value import Val, Write

Start = Val | int

# A whole value of so many elements is written anew faster than a loop begins.
_SMALL = 1 << 12


def _slice_under(x: Val) -> Val | None:
    """The slice that ``x`` is, but for reshapes."""
    while x.sliced is None and x.reshaped is not None:
        x = x.reshaped
    return x if x.sliced is not None else None


def _write_under(x: Val) -> Write | None:
    """The write whose result ``x`` is, but for reshapes."""
    while x.written is None and x.reshaped is not None:
        x = x.reshaped
    return x.written


def _long_dims(shape: Sequence[int]) -> list[int]:
    return [i for i, size in enumerate(shape) if size != 1]


def _outer_block(
    target: Val, starts: Sequence[Start], sizes: Sequence[int]
) -> tuple[list[Start], list[int]] | None:
    """Starts and sizes of a block of ``target``, a slice, in what that is a slice of."""
    block = _slice_under(target)
    if block is None or block.sliced is None:
        return None
    whole, places = block.sliced
    outer_dims, inner_dims = _long_dims(block.shape), _long_dims(target.shape)
    if [block.shape[i] for i in outer_dims] != [target.shape[i] for i in inner_dims]:
        return None
    outer_starts: list[Start] = list(places)
    outer_sizes = [1] * whole.ndim
    for i, j in zip(outer_dims, inner_dims, strict=True):
        outer_sizes[i], start = sizes[j], starts[j]
        if isinstance(start, int):
            outer_starts[i] = places[i] + max(0, min(start, target.shape[j] - sizes[j]))
        elif block.shape[i] == whole.shape[i]:
            outer_starts[i] = start
        else:
            return None  # the start would have to be clamped to the slice
    return outer_starts, outer_sizes


class Blocks(Control):
    """Writes to blocks.

    A write to a view, and then of the view to what it is a view of, becomes one write to the latter:
    it moves no more than it writes, where XLA would copy all that the view shows.
    """

    def dynamic_update_slice(self, x: Val, update: Val, starts: Sequence[Start]) -> Val:
        """``x`` with the block at ``starts`` (clamped) replaced by ``update``."""
        if update.shape == x.shape:
            return update
        if 0 in update.shape:
            return x
        if (through := self._through_view(x, update, starts)) is not None:
            return through
        indices = [self.scalar(start, torch.int64) for start in starts]
        result = self.op1("stablehlo.dynamic_update_slice", [x, update, *indices], x.dtype, x.shape)
        result.written = Write(x, update, tuple(starts))
        return result

    def write_block(
        self,
        x: Val,
        block: Val,
        starts: Sequence[Start],
        wanted: Val,
        combine: Callable[[Val, Val], Val],
    ) -> Val:
        """``x`` with ``combine(old, block)`` at ``starts`` if ``wanted``, a 0-d bool, holds.

        Where it holds the block lies inside. A loop of one step or none: nothing is fused with it, while
        XLA repeats a write in place, on a copy, for each that reads its result in another shape than
        the flat one of storages.
        """
        write = Write(x, block, tuple(starts), wanted, combine)
        if x.numel <= _SMALL:
            old = self.dynamic_slice(x, starts, block.shape)
            new = self.select(wanted, combine(old, block), old)
            result = self.dynamic_update_slice(x, new, starts)
        else:
            result = self._looped_write(write, wanted, combine)
        result.written = write
        return result

    def _looped_write(self, write: Write, wanted: Val, combine: Callable[[Val, Val], Val]) -> Val:
        x, block, starts = write.target, write.block, write.starts
        moving = [self.scalar(start, torch.int64) for start in starts if isinstance(start, Val)]

        def step(_: Val, whole: Val, given: Val, *places: Val) -> list[Val]:
            rest = iter(places)
            at = [next(rest) if isinstance(start, Val) else start for start in starts]
            new = combine(self.dynamic_slice(whole, at, block.shape), given)
            return [self.dynamic_update_slice(whole, new, at), given, *places]

        return self.for_(self.convert(wanted, torch.int64), [x, block, *moving], step)[0]

    def _through_view(self, x: Val, update: Val, starts: Sequence[Start]) -> Val | None:
        """The write to ``x`` where ``update`` is its block at ``starts`` with a part written."""
        write = _write_under(update)
        if write is None:
            return None
        block = _slice_under(write.target)
        if block is None or block.shape != update.shape or block.sliced != (x, tuple(starts)):
            return None
        outer = _outer_block(write.target, write.starts, write.block.shape)
        if outer is None:
            return None
        part = self.reshape(write.block, outer[1])
        if write.wanted is None or write.combine is None:
            return self.dynamic_update_slice(x, part, outer[0])
        return self.write_block(x, part, outer[0], write.wanted, write.combine)
