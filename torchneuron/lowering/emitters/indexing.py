"""Reading by index: index, gather, take, index_select.

An index outside the tensor reads the nearest element inside, as StableHLO's gather does; PyTorch's CPU kernels raise
IndexError there, which a program without side effects cannot. Where the indices are on the host the caller can check.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.emitting import finish, operand, shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.hlo.shape import broadcast_shapes
from torchneuron.lowering.registry import emitter

Indices = Sequence[Val | None]


def is_mask(index: Val | None) -> bool:
    """Whether an index selects by truth, which makes the result's size depend on data."""
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def wrapped(b: Builder, index: Val, size: int) -> Val:
    """``index`` as int64 with negative values counted from the end."""
    index = b.convert(index, torch.int64)
    return b.select(b.lt(index, 0), b.add(index, size), index)


def flat_strides(shape: Sequence[int]) -> list[int]:
    """Strides of a contiguous tensor."""
    return [prod(shape[dim + 1 :]) for dim in range(len(shape))]


@dataclass(frozen=True)
class Coordinates:
    """Integer indices of some dimensions of a tensor, broadcast to one shape.

    In the result of indexing their ``shape`` stands at ``position``, the dimensions not indexed around it in order.
    """

    values: list[Val]
    dims: list[int]
    shape: tuple[int, ...]
    position: int

    @property
    def adjacent(self) -> bool:
        """Whether no dimension between the indexed ones is left out."""
        return self.dims == list(range(self.dims[0], self.dims[0] + len(self.dims)))

    def linear(self, b: Builder, sizes: Sequence[int], drop: bool = False) -> Val:
        """One index into the indexed dimensions merged, which are adjacent.

        What lies outside is clamped to its dimension or, with ``drop``, lies outside of the merged one.
        """
        indexed = [sizes[dim] for dim in self.dims]
        result, outside = None, []
        for value, size, stride in zip(self.values, indexed, flat_strides(indexed), strict=True):
            inside = b.clamp(0, value, size - 1)
            outside.append(b.ne(inside, value))
            term = b.mul(inside, stride)
            result = term if result is None else b.add(result, term)
        assert result is not None
        if drop:
            for condition in outside:
                result = b.select(condition, prod(indexed), result)
        return result

    def stacked(self, b: Builder) -> Val:
        """Index vectors: (*shape, number of dimensions indexed)."""
        return b.concat([b.unsqueeze(value, -1) for value in self.values], -1)


def coordinates(b: Builder, op: str, sizes: Sequence[int], indices: Indices) -> Coordinates:
    """The given indices of a tensor of ``sizes``; LoweringError for masks."""
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(is_mask(index) for index in given):
        raise LoweringError(op, "the result of indexing by a mask has a size that depends on data")
    shape = broadcast_shapes(*(index.shape for index in given))
    values = [
        b.broadcast_to(wrapped(b, index, sizes[dim]), shape)
        for dim, index in zip(dims, given, strict=True)
    ]
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    return Coordinates(values, dims, shape, dims[0] if adjacent else 0)


def _index(b: Builder, op: str, out: torch.Tensor, x: Val, indices: Indices) -> Val:
    if all(index is None for index in indices):
        return x
    where = coordinates(b, op, x.shape, indices)
    shape = shape_of(out)
    if 0 in shape:
        return b.full(shape, 0, x.dtype)
    first, count = where.dims[0], len(where.dims)
    if where.adjacent:
        merged = (*x.shape[:first], prod(x.shape[first : first + count]), *x.shape[first + count :])
        return b.take(b.reshape(x, merged), where.linear(b, x.shape), first)
    rank = len(where.shape)
    sizes = [1 if dim in where.dims else size for dim, size in enumerate(x.shape)]
    return b.gather(
        x,
        where.stacked(b),
        sizes,
        offset_dims=list(range(rank, rank + x.ndim - count)),
        collapsed=where.dims,
        index_map=where.dims,
        index_vector_dim=rank,
    )


@emitter("aten.index.Tensor")
def index(b: Builder, out: Any, x: Val, indices: Indices) -> Val:
    return _index(b, "aten.index.Tensor", out, x, indices)


@emitter("aten._unsafe_index.Tensor")
def unsafe_index(b: Builder, out: Any, x: Val, indices: Indices) -> Val:
    return _index(b, "aten._unsafe_index.Tensor", out, x, indices)


@emitter("aten._unsafe_masked_index")
def unsafe_masked_index(
    b: Builder, out: Any, x: Val, mask: Val, indices: Indices, fill: Val | Number
) -> Val:
    if x.numel == 0:
        return finish(b, b.scalar(fill, x.dtype), out)
    value = _index(b, "aten._unsafe_masked_index.default", out, x, indices)
    return finish(b, b.select(b.convert(mask, torch.bool), value, operand(b, fill, x.dtype)), out)


def element_index(b: Builder, sizes: Sequence[int], index: Val, dim: int) -> Val:
    """Where in a flat tensor of ``sizes`` stand the elements that gather and scatter address.

    ``index`` (int64, as many dimensions) replaces coordinate ``dim``; the others are the element's own.
    """
    result = None
    for axis, stride in enumerate(flat_strides(sizes)):
        if axis == dim:
            term = b.mul(index, stride)
        elif index.shape[axis] == 1:
            continue
        else:
            term = b.mul(b.iota(index.shape, axis), stride)
        result = term if result is None else b.add(result, term)
    assert result is not None
    return result


@emitter("aten.gather")
def gather(b: Builder, out: Any, x: Val, dim: int, index: Val, sparse_grad: bool = False) -> Val:
    shape = shape_of(out)
    if 0 in shape:
        return b.full(shape, 0, x.dtype)
    sizes = x.shape or (1,)
    dim %= len(sizes)
    places = b.reshape(b.convert(index, torch.int64), index.shape or (1,))
    if places.ndim != len(sizes):
        # A 0-d tensor goes with an index of one dimension, and the other way round.
        places = b.reshape(places, (places.numel,))
    places = element_index(b, sizes, b.clamp(0, places, sizes[dim] - 1), dim)
    return b.reshape(b.take(b.reshape(x, (x.numel,)), places), shape)


def take_along_last(b: Builder, x: Val, index: Val) -> Val:
    """x[..., index[..., j]] for an index of any integer dtype, in range, with equal leading dimensions."""
    index = b.convert(index, torch.int64)
    flat = b.reshape(x, (x.numel,))
    return b.take(flat, element_index(b, x.shape, index, x.ndim - 1))


@emitter("aten.take")
def take(b: Builder, out: Any, x: Val, index: Val) -> Val:
    if 0 in index.shape:
        return b.full(index.shape, 0, x.dtype)
    return b.take(b.reshape(x, (x.numel,)), wrapped(b, index, x.numel))


@emitter("aten.index_select")
def index_select(b: Builder, out: Any, x: Val, dim: int, index: Val) -> Val:
    shape = shape_of(out)
    if 0 in shape:
        return b.full(shape, 0, x.dtype)
    values = b.reshape(x, x.shape or (1,))
    places = b.reshape(b.convert(index, torch.int64), (index.numel,))
    return b.reshape(b.take(values, places, dim % values.ndim), shape)
