"""Distances of all pairs of rows and their gradients; the norm's order is part of the program."""

from typing import Any

import numpy as np
import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter

_INFINITY = float("inf")

# Above so many rows PyTorch multiplies matrices instead, unless told otherwise.
_FEW_ROWS = 25
_ALWAYS_PRODUCT = 1

# The pairs of so many rows fit into a program's constants.
_MOST_PAIRED_ROWS = 1024


def _differences(b: Builder, x: Val, y: Val) -> Val:
    """(..., P, R, M) of (..., P, M) and (..., R, M)."""
    return b.sub(b.unsqueeze(x, x.ndim - 1), b.unsqueeze(y, y.ndim - 2))


def _norm(b: Builder, differences: Val, p: float) -> Val:
    """The norm over the last dimension."""
    size, last = b.abs(differences), [differences.ndim - 1]
    if p == 0:
        return b.reduce_sum(b.convert(b.ne(size, 0), size.dtype), last)
    if p == 1:
        return b.reduce_sum(size, last)
    if p == 2:
        return b.sqrt(b.reduce_sum(b.mul(size, size), last))
    if p == _INFINITY:
        return b.max(b.reduce_max(size, last), 0)
    return b.pow(b.reduce_sum(b.pow(size, p), last), 1 / p)


def _directions(b: Builder, differences: Val, norms: Val, p: float) -> Val:
    """The norms' derivatives by the differences; 0 where rows coincide."""
    distance = b.unsqueeze(norms, norms.ndim)
    size, sign = b.abs(differences), b.sign(differences)
    if p == 1:
        return sign
    if p == _INFINITY:
        return b.mul(sign, b.convert(b.eq(size, distance), sign.dtype))
    if p == 2:
        ratio = b.div(differences, distance)
    elif p < 2:
        scaled = b.div(b.pow(size, p - 1), b.pow(distance, p - 1))
        ratio = b.select(b.eq(differences, 0), 0, b.mul(sign, scaled))
    else:
        scaled = b.div(b.pow(size, p - 2), b.pow(distance, p - 1))
        ratio = b.mul(differences, scaled)
    return b.select(b.eq(distance, 0), 0, ratio)


def _euclidean_by_product(b: Builder, x: Val, y: Val) -> Val:
    """sqrt(|x|^2 + |y|^2 - 2 x y), as PyTorch does for many rows."""
    last = x.ndim - 1
    squares_x = b.reduce_sum(b.mul(x, x), [last], True)
    squares_y = b.reduce_sum(b.mul(y, y), [last])
    batch = list(range(x.ndim - 2))
    inner = b.dot_general(x, y, ([last], [last]), (batch, batch))
    total = b.add(b.add(squares_x, b.unsqueeze(squares_y, last - 1)), b.mul(inner, -2))
    return b.sqrt(b.max(total, 0))


@emitter("aten._cdist_forward", static=("p",))
def cdist_forward(
    b: Builder, out: Any, x1: Val, x2: Val, p: float, compute_mode: int | None = None
) -> Val:
    shape = shape_of(out)
    if 0 in shape:
        return b.full(shape, 0, out.dtype)
    dtype, batch = opmath(out.dtype), shape[:-2]
    x = b.broadcast_to(b.convert(x1, dtype), (*batch, *x1.shape[-2:]))
    y = b.broadcast_to(b.convert(x2, dtype), (*batch, *x2.shape[-2:]))
    many = max(shape[-2:]) > _FEW_ROWS and not compute_mode
    if p == 2 and x.shape[-1] and (many or compute_mode == _ALWAYS_PRODUCT):
        return finish(b, _euclidean_by_product(b, x, y), out)
    return finish(b, _norm(b, _differences(b, x, y), p), out)


@emitter("aten._euclidean_dist")
def euclidean_dist(b: Builder, out: Any, x1: Val, x2: Val) -> Val:
    dtype = opmath(out.dtype)
    return finish(b, _euclidean_by_product(b, b.convert(x1, dtype), b.convert(x2, dtype)), out)


@emitter("aten._cdist_backward", static=("p",))
def cdist_backward(b: Builder, out: Any, grad: Val, x1: Val, x2: Val, p: float, cdist: Val) -> Val:
    shape, dtype = shape_of(out), opmath(out.dtype)
    if p == 0 or 0 in (grad.numel, x1.numel, x2.numel):
        return b.full(shape, 0, out.dtype)
    differences = _differences(b, b.convert(x1, dtype), b.convert(x2, dtype))
    slopes = _directions(b, differences, b.convert(cdist, dtype), p)
    product = b.mul(b.unsqueeze(b.convert(grad, dtype), grad.ndim), slopes)
    total = b.reduce_sum(product, [product.ndim - 2])
    return finish(b, _sum_to_shape(b, total, shape), out)


def _sum_to_shape(b: Builder, x: Val, shape: tuple[int, ...]) -> Val:
    """``x`` summed over the dimensions that ``shape`` was broadcast along."""
    extra = x.ndim - len(shape)
    if extra > 0:
        x = b.reduce_sum(x, range(extra))
    dims = [i for i, size in enumerate(shape) if size == 1 and x.shape[i] > 1]
    return b.reduce_sum(x, dims, True) if dims else x


# Pairs of rows of one tensor, i < j in order


def _check_pairs(rows: int) -> None:
    if rows > _MOST_PAIRED_ROWS:
        raise LoweringError("aten._pdist", f"{rows} rows")


@emitter("aten._pdist_forward", static=("p",))
def pdist_forward(b: Builder, out: Any, self: Val, p: float = 2) -> Val:
    rows = self.shape[0]
    _check_pairs(rows)
    if 0 in shape_of(out) or self.numel == 0:
        return b.full(shape_of(out), 0, out.dtype)
    x = b.convert(self, opmath(out.dtype))
    distances = _norm(b, _differences(b, x, x), p)
    first, second = np.triu_indices(rows, 1)
    places = b.constant(first * rows + second, torch.int32)
    return finish(b, b.take(b.reshape(distances, (rows * rows,)), places, 0), out)


@emitter("aten._pdist_backward", static=("p",))
def pdist_backward(b: Builder, out: Any, grad: Val, self: Val, p: float, pdist: Val) -> Val:
    rows = self.shape[0]
    _check_pairs(rows)
    if rows < 2 or self.numel == 0:
        return b.full(shape_of(out), 0, out.dtype)
    numbers = np.zeros((rows, rows), np.int32)
    numbers[np.triu_indices(rows, 1)] = np.arange(rows * (rows - 1) // 2)
    places = b.constant(numbers + numbers.T, torch.int32)
    apart = b.ne(b.iota((rows, rows), 0), b.iota((rows, rows), 1))
    square_grad, square_distances = (
        b.select(apart, b.take(b.convert(x, opmath(out.dtype)), places, 0), 0)
        for x in (grad, pdist)
    )
    return cdist_backward(b, out, square_grad, self, self, p, square_distances)
