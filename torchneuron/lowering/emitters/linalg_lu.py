"""LU factorisation with partial pivoting, and what follows from it."""

from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import is_complex
from torchneuron.lowering.emitters.linalg import (
    PANEL,
    batched,
    block,
    diagonal_of,
    expanded,
    identity_like,
    no_checks,
    positions,
    rounded_up,
    solve_triangular,
    transposed,
    triangle,
)
from torchneuron.lowering.emitting import shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter

_I32 = torch.int32


def take_rows(b: Builder, x: Val, order: Val) -> Val:
    """``x[i, order[i]]`` for each i of the batch; ``order`` (batch, m) is i32."""
    batch, rows, columns = x.shape
    first = b.mul(positions(b, order.shape, 0), rows)
    flat = b.reshape(x, (batch * rows, columns))
    return b.take(flat, b.add(order, first))


def _magnitude(b: Builder, x: Val) -> Val:
    """What LAPACK compares pivots by."""
    if is_complex(x.dtype):
        return b.add(b.abs(b.real(x)), b.abs(b.imag(x)))
    return b.abs(x)


def _argmax(b: Builder, x: Val) -> Val:
    """(batch, 1) i32: row of the first maximum of ``x`` (batch, m, 1)."""
    rows = positions(b, x.shape, 1)
    highest = b.reduce_max(x, [1], keepdim=True)
    # A NaN is a maximum that equals nothing: it shall be a pivot too.
    found = b.or_(b.eq(x, highest), b.isnan(x))
    return b.reduce_min(b.select(found, rows, x.shape[1] - 1), [1])


def _swapped(b: Builder, x: Val, row: Val, other: Val) -> Val:
    """``x`` (batch, m, n) with row ``row`` (0-d) and rows ``other`` (batch, 1) exchanged."""
    batch, _, columns = x.shape
    index = positions(b, x.shape, 1)
    at_other = b.eq(index, b.reshape(other, (batch, 1, 1)))
    first = b.dynamic_slice(x, [0, row, 0], [batch, 1, columns])
    second = b.reduce_sum(b.select(at_other, x, 0), [1], keepdim=True)
    moved = b.select(at_other, b.broadcast_to(first, x.shape), x)
    return b.select(b.eq(index, b.convert(row, _I32)), b.broadcast_to(second, x.shape), moved)


def lu_factor(b: Builder, x: Val) -> tuple[Val, Val, Val, Val]:
    """(LU, pivots, order, info) of ``x`` (batch, m, n).

    ``pivots`` (batch, min(m, n)) i32 are LAPACK's row exchanges, counted from 1; row i of P^T x is row ``order[i]`` of
    ``x``; ``info`` (batch,) i32 is the first zero pivot, counted from 1.
    """
    batch, rows, columns = x.shape
    rank = min(rows, columns)
    width = min(PANEL, rank)
    whole = rounded_up(rank, width)
    # Panels must not reach over the edge: there, dynamic slices would move.
    tall, wide = max(rows, whole), max(columns, whole)
    x = b.pad(x, [0, 0, 0], [0, tall - rows, wide - columns])

    def panel(j: Val, x: Val, pivots: Val, order: Val, info: Val) -> list[Val]:
        start = b.mul(j, width)
        columns = block(b, x, 0, start, tall, width)
        local = positions(b, (batch, tall, 1), 1)
        state = [columns, pivots, local, info, start]
        columns, pivots, local, info, _ = b.for_(
            width, state, lambda c, *s: _lu_column(b, c, rank, rows, *s)
        )
        moves = b.reshape(local, (batch, tall))
        order = b.reshape(take_rows(b, b.reshape(order, (batch, tall, 1)), moves), (batch, tall))
        x = _update(b, take_rows(b, x, moves), columns, start)
        return [x, pivots, order, info]

    state = [
        x,
        b.full((batch, whole), 0, _I32),
        positions(b, (batch, tall), 1),
        b.full((batch,), 0, _I32),
    ]
    x, pivots, order, info = b.for_(whole // width, state, panel)
    return (
        b.slice(x, [0, 0, 0], [batch, rows, columns]),
        b.slice_dim(pivots, 1, 0, rank),
        b.slice_dim(order, 1, 0, rows),
        info,
    )


def _lu_column(
    b: Builder,
    c: Val,
    rank: int,
    limit: int,
    columns: Val,
    pivots: Val,
    moves: Val,
    info: Val,
    start: Val,
) -> list[Val]:
    """Choose the pivot of column ``c`` of a panel that starts at row ``start``, divide, update the panel."""
    batch, rows, width = columns.shape
    row = b.add(start, c)
    line = b.convert(row, _I32)
    active = b.lt(row, rank)
    column = block(b, columns, 0, c, rows, 1)
    index = positions(b, column.shape, 1)
    candidate = b.and_(b.ge(index, line), b.lt(index, limit))
    chosen = _argmax(b, b.select(candidate, _magnitude(b, column), -1))
    chosen = b.select(active, chosen, b.broadcast_to(line, chosen.shape))
    columns, moves = _swapped(b, columns, row, chosen), _swapped(b, moves, row, chosen)
    pivots = b.dynamic_update_slice(pivots, b.add(chosen, 1), [0, row])

    column = block(b, columns, 0, c, rows, 1)
    pivot = block(b, columns, row, c, 1, 1)
    zero = b.eq(pivot, 0)
    singular = b.and_(b.and_(b.reshape(zero, (batch,)), active), b.eq(info, 0))
    info = b.select(singular, b.add(line, 1), info)
    below = b.and_(b.gt(index, line), active)
    ratio = b.select(below, b.div(column, b.select(zero, 1, pivot)), 0)
    rest = b.gt(positions(b, (batch, 1, width), 2), b.convert(c, _I32))
    pivot_row = b.select(rest, block(b, columns, row, 0, 1, width), 0)
    updated = b.sub(columns, b.mul(ratio, pivot_row))
    finished = b.select(below, ratio, column)
    return [b.dynamic_update_slice(updated, finished, [0, 0, c]), pivots, moves, info, start]


def _update(b: Builder, x: Val, panel: Val, start: Val) -> Val:
    """``x``, its rows already exchanged, with the finished ``panel`` and the columns right of it updated."""
    wide = x.shape[2]
    width = panel.shape[2]
    first = b.convert(start, _I32)
    square = block(b, panel, start, 0, width, width)
    rows = block(b, x, start, 0, width, wide)
    right = b.ge(positions(b, rows.shape, 2), b.add(first, width))
    solved = solve_triangular(b, square, b.select(right, rows, 0), upper=False, unit=True)
    rows = b.select(right, solved, rows)
    below = b.ge(positions(b, panel.shape, 1), b.add(first, width))
    x = b.sub(x, b.matmul(b.select(below, panel, 0), b.select(right, rows, 0)))
    x = b.dynamic_update_slice(x, rows, [0, start, 0])
    return b.dynamic_update_slice(x, panel, [0, 0, start])


# Permutations


def order_of(b: Builder, pivots: Val, rows: int) -> Val:
    """(batch, rows) i32: where each row of P^T x is in x, from LAPACK's exchanges ``pivots`` (batch, k)."""
    batch = pivots.shape[0]

    def exchange(i: Val, order: Val, pivots: Val) -> list[Val]:
        other = b.sub(b.dynamic_slice(pivots, [0, i], [batch, 1]), 1)
        return [_swapped(b, order, i, other), pivots]

    order = b.for_(pivots.shape[1], [positions(b, (batch, rows, 1), 1), pivots], exchange)[0]
    return b.reshape(order, (batch, rows))


def _inverse_order(b: Builder, order: Val) -> Val:
    batch, rows = order.shape
    hit = b.eq(b.reshape(order, (batch, rows, 1)), positions(b, (batch, rows, rows), 2))
    return b.reduce_sum(b.select(hit, positions(b, hit.shape, 1), 0), [1])


def _permutation(b: Builder, order: Val, dtype: torch.dtype) -> Val:
    """P of x = P L U: column i has its one in row ``order[i]``."""
    batch, rows = order.shape
    hit = b.eq(b.reshape(order, (batch, 1, rows)), positions(b, (batch, rows, rows), 1))
    return b.convert(hit, dtype)


# Solving


def _solve_with(b: Builder, lu: Val, order: Val, rhs: Val, adjoint: bool = False) -> Val:
    """x of A x = rhs (or A^H x = rhs) from A's factors; all (batch, n, k)."""
    if not adjoint:
        half = solve_triangular(b, lu, take_rows(b, rhs, order), upper=False, unit=True)
        return solve_triangular(b, lu, half, upper=True)
    flipped = b.conj(transposed(b, lu))
    half = solve_triangular(b, flipped, rhs, upper=False)
    solved = solve_triangular(b, flipped, half, upper=True, unit=True)
    return take_rows(b, solved, _inverse_order(b, order))


def _solve(b: Builder, lu: Val, order: Val, rhs: Val, left: bool, adjoint: bool) -> Val:
    """``_solve_with`` for x on either side of A."""
    if left:
        return _solve_with(b, lu, order, rhs, adjoint)
    # x A = rhs is A^H x^H = rhs^H.
    turned = b.conj(transposed(b, rhs))
    return b.conj(transposed(b, _solve_with(b, lu, order, turned, not adjoint)))


@emitter("aten.linalg_lu_factor_ex")
def linalg_lu_factor_ex(
    b: Builder, out: Any, x: Val, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Val, Val, Val]:
    no_checks("aten.linalg_lu_factor_ex", check_errors)
    _need_pivots("aten.linalg_lu_factor_ex", pivot)
    shapes = [shape_of(one) for one in out]
    if x.numel == 0:
        return x, b.full(shapes[1], 0, _I32), b.full(shapes[2], 0, _I32)
    lu, pivots, _, info = lu_factor(b, batched(b, x))
    return b.reshape(lu, shapes[0]), b.reshape(pivots, shapes[1]), b.reshape(info, shapes[2])


def _need_pivots(op: str, pivot: bool) -> None:
    if not pivot:
        raise LoweringError(op, "PyTorch's CPU has no LU without pivoting")


@emitter("aten.linalg_lu")
def linalg_lu(b: Builder, out: Any, x: Val, *, pivot: bool = True) -> tuple[Val, Val, Val]:
    _need_pivots("aten.linalg_lu", pivot)
    shapes = [shape_of(one) for one in out]
    if x.numel == 0:
        square = b.full(shapes[0], 0, x.dtype)
        return (
            identity_like(b, square),
            b.full(shapes[1], 0, x.dtype),
            b.full(shapes[2], 0, x.dtype),
        )
    lu, _, order, _ = lu_factor(b, batched(b, x))
    lower, upper = _halves(b, lu)
    parts = (_permutation(b, order, x.dtype), lower, upper)
    return tuple(b.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True))  # type: ignore[return-value]


def _halves(b: Builder, lu: Val) -> tuple[Val, Val]:
    """L (batch, m, k) with ones on its diagonal and U (batch, k, n)."""
    rank = min(lu.shape[1:])
    lower = triangle(b, b.slice_dim(lu, 2, 0, rank), upper=False, diagonal=-1)
    return b.add(lower, identity_like(b, lower)), triangle(
        b, b.slice_dim(lu, 1, 0, rank), upper=True
    )


@emitter("aten.lu_unpack")
def lu_unpack(
    b: Builder, out: Any, lu: Val, pivots: Val, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Val, Val, Val]:
    shapes = [shape_of(one) for one in out]
    parts = [b.full(shape, 0, lu.dtype) for shape in shapes]
    if unpack_data and lu.numel:
        parts[1:] = _halves(b, batched(b, lu))
    if unpack_pivots and out[0].numel():
        rows = lu.shape[-2]
        flat = b.reshape(pivots, (out[0].numel() // rows**2, pivots.shape[-1]))
        parts[0] = _permutation(b, order_of(b, flat, rows), lu.dtype)
    return tuple(b.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True))  # type: ignore[return-value]


@emitter("aten.linalg_lu_solve")
def linalg_lu_solve(
    b: Builder,
    out: Any,
    lu: Val,
    pivots: Val,
    rhs: Val,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> Val:
    shape = shape_of(out)
    if out.numel() == 0:
        return b.full(shape, 0, out.dtype)
    size = lu.shape[-1]
    lu = batched(b, expanded(b, lu, shape[:-2]))
    flat = b.reshape(b.broadcast_to(pivots, (*shape[:-2], size)), (lu.shape[0], size))
    rhs = batched(b, expanded(b, rhs, shape[:-2]))
    return b.reshape(_solve(b, lu, order_of(b, flat, size), rhs, left, adjoint), shape)


@emitter("aten._linalg_solve_ex")
def linalg_solve_ex(
    b: Builder, out: Any, x: Val, rhs: Val, *, left: bool = True, check_errors: bool = False
) -> tuple[Val, ...]:
    no_checks("aten._linalg_solve_ex", check_errors)
    shapes = [shape_of(one) for one in out]
    if x.numel == 0 or out[0].numel() == 0:
        return tuple(b.full(shape, 0, one.dtype) for one, shape in zip(out, shapes, strict=True))
    lu, pivots, order, info = lu_factor(b, batched(b, x))
    vector = len(shapes[0]) == x.ndim - 1
    shape = (*shapes[0], 1) if vector else shapes[0]
    right = (
        b.unsqueeze(b.broadcast_to(rhs, shapes[0]), -1) if vector else expanded(b, rhs, shape[:-2])
    )
    batch = shape[:-2]
    factors = batched(b, expanded(b, b.reshape(lu, x.shape), batch))
    rows = (*batch, x.shape[-1])
    orders = b.reshape(b.broadcast_to(b.reshape(order, x.shape[:-1]), rows), factors.shape[:2])
    result = _solve(b, factors, orders, batched(b, right), left, adjoint=False)
    parts = (result, lu, pivots, info)
    return tuple(b.reshape(part, to) for part, to in zip(parts, shapes, strict=True))


@emitter("aten.linalg_inv_ex")
def linalg_inv_ex(b: Builder, out: Any, x: Val, *, check_errors: bool = False) -> tuple[Val, Val]:
    no_checks("aten.linalg_inv_ex", check_errors)
    if x.numel == 0:
        return x, b.full(shape_of(out[1]), 0, _I32)
    matrix = batched(b, x)
    lu, _, order, info = lu_factor(b, matrix)
    inverse = _solve_with(b, lu, order, identity_like(b, matrix))
    return b.reshape(inverse, x.shape), b.reshape(info, shape_of(out[1]))


# Determinants


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Row-major and dense, as ``Tensor.is_contiguous``."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _parity(b: Builder, pivots: Val) -> Val:
    """(batch,) bool: the number of exchanges is odd."""
    moved = b.ne(pivots, b.add(positions(b, pivots.shape, 1), 1))
    return b.ne(b.rem(b.reduce_sum(b.convert(moved, _I32), [1]), 2), 0)


def _factor_for_determinant(b: Builder, x: Val, strides: tuple[int, ...]) -> tuple[Val, Val]:
    """(LU, pivots) of x, or of its transpose where PyTorch takes that: its backward counts on it."""
    matrix = batched(b, x)
    if not is_complex(x.dtype) and is_contiguous(x.shape, strides):
        matrix = transposed(b, matrix)
    return lu_factor(b, matrix)[:2]


@emitter("aten._linalg_det", layout=True)
def linalg_det(b: Builder, out: Any, x: Val, *, strides: tuple[int, ...]) -> tuple[Val, Val, Val]:
    shapes = [shape_of(one) for one in out]
    if x.numel == 0:
        return b.full(shapes[0], 1, x.dtype), x, b.full(shapes[2], 0, _I32)
    lu, pivots = _factor_for_determinant(b, x, strides)
    product = b.reduce_prod(diagonal_of(b, lu), [1])
    result = b.select(_parity(b, pivots), b.neg(product), product)
    parts = (result, lu, pivots)
    return tuple(b.reshape(part, to) for part, to in zip(parts, shapes, strict=True))  # type: ignore[return-value]


@emitter("aten._linalg_slogdet", layout=True)
def linalg_slogdet(b: Builder, out: Any, x: Val, *, strides: tuple[int, ...]) -> tuple[Val, ...]:
    shapes = [shape_of(one) for one in out]
    if x.numel == 0:
        rest = (x, b.full(shapes[3], 0, _I32))
        return b.full(shapes[0], 1, x.dtype), b.full(shapes[1], 0, out[1].dtype), *rest
    lu, pivots = _factor_for_determinant(b, x, strides)
    diagonal = diagonal_of(b, lu)
    size = b.abs(diagonal)
    phase = b.sign(diagonal)
    product = b.reduce_prod(phase, [1])
    sign = b.select(_parity(b, pivots), b.neg(product), product)
    parts = (sign, b.reduce_sum(b.log(size), [1]), lu, pivots)
    return tuple(b.reshape(part, to) for part, to in zip(parts, shapes, strict=True))
