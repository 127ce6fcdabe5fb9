"""An SSA value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from torchneuron.lowering.dtypes import mlir_name


def tensor_type(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    """``tensor<2x3xf32>``"""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{mlir_name(dtype)}>"


@dataclass(frozen=True, eq=False)
class Write:
    """``target`` with ``block`` at ``starts``; see `Blocks.write_block` for the rest."""

    target: Val
    block: Val
    starts: tuple[Val | int, ...]
    wanted: Val | None = None
    combine: Callable[[Val, Val], Val] | None = None


class Val:
    """A tensor value in the program: its SSA name ``ir``, torch dtype and shape.

    ``wrapped`` marks a Python number that is an operand; like a number it does not take part in
    type promotion beyond its category. What made a value: ``transposed`` is a transpose's operand and
    permutation, ``reshaped`` a reshape's operand, ``sliced`` a contiguous slice's operand and starts,
    ``written`` a write to a block.
    """

    __slots__ = ("dtype", "ir", "reshaped", "shape", "sliced", "transposed", "wrapped", "written")

    def __init__(self, ir: str, dtype: torch.dtype, shape: tuple[int, ...], wrapped: bool = False):
        """``ir`` names a value of that dtype and shape."""
        self.ir = ir
        self.dtype = dtype
        self.shape = shape
        self.wrapped = wrapped
        self.transposed: tuple[Val, tuple[int, ...]] | None = None
        self.reshaped: Val | None = None
        self.sliced: tuple[Val, tuple[int, ...]] | None = None
        self.written: Write | None = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def type(self) -> str:
        """The type's text, ``tensor<2x3xf32>``."""
        return tensor_type(self.dtype, self.shape)

    def __repr__(self) -> str:
        """Name and type."""
        return f"{self.ir} : {self.type}"
