"""The interface of a program: the storages it takes, the views on them that it reads, what it gives
back.

A program's parameters are, in this order: every storage as a flat tensor; one 0-d tensor for each
``ScalarInput`` and one 1-D tensor for each ``ScalarListInput``, as they come in ``inputs``; one 0-d
i64 for each ``TensorInput`` with a dynamic offset; and, if it draws random numbers, tensor<2xui64>
(seed, offset). Its results are one flat tensor for each output.
"""

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class StorageSpec:
    """A flat buffer of ``numel`` elements of ``dtype`` (the dtype of the buffer, not of the views
    on it).
    """

    dtype: torch.dtype
    numel: int


@dataclass(frozen=True)
class TensorInput:
    """A view of storage number ``storage``; sizes, strides and offset count elements of the view's
    own ``dtype``.

    Without ``dynamic_offset`` the view starts at element 0 of the storage.
    """

    storage: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dynamic_offset: bool = False

    @property
    def numel(self) -> int:
        """Number of elements that the view shows."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class ScalarInput:
    """A Python number that is an operand: 0-d of ``dtype``; ``example`` stands for it in shape
    inference.

    With ``wrapped`` False it is a 0-d tensor on the host instead, which counts as one in promotion.
    """

    dtype: torch.dtype
    example: bool | int | float | complex
    wrapped: bool = True


@dataclass(frozen=True)
class ScalarListInput:
    """A list of Python numbers as one operand: (length,) of ``dtype``; ``example`` stands for it in
    shape inference.
    """

    dtype: torch.dtype
    length: int
    example: tuple[bool | int | float | complex, ...]


@dataclass(frozen=True)
class StaticInput:
    """A Python value that is part of the program: no operand."""

    value: bool | int | float | complex | None


@dataclass(frozen=True)
class FreshOutput:
    """A result in a storage of its own; ``strides`` may be any dense permutation of ``sizes``."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class StorageOutput:
    """A result written through the view ``target`` into storage number ``storage``, whose new value
    is the output.

    A target with a dynamic offset shares the offset operand of ``ProgramSpec.inputs[input]``;
    without ``input`` it is the input that *is* (else the first that equals) ``target``. Several
    outputs may write one storage: they are applied in order, and each of them gives the storage's
    final value.
    """

    storage: int
    target: TensorInput
    input: int | None = None


@dataclass(frozen=True)
class ProgramSpec:
    """``inputs`` follow the graph's placeholders, ``outputs`` its output tuple."""

    storages: tuple[StorageSpec, ...]
    inputs: tuple[TensorInput | ScalarInput | ScalarListInput | StaticInput, ...]
    outputs: tuple[FreshOutput | StorageOutput, ...]

    def offset_operand(self, output: StorageOutput) -> int:
        """Index into ``inputs`` of the view whose offset operand ``output`` uses."""
        if output.input is not None:
            return output.input
        for index, candidate in enumerate(self.inputs):
            if candidate is output.target:
                return index
        return self.inputs.index(output.target)
