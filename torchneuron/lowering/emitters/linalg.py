"""Matrix building blocks of the factorisations, and the ops on triangular matrices.

Factorisations are loops of StableHLO with a static number of steps over dynamic slices and products: no compiler has to
know more. They work on (batch, rows, columns) and by panels of ``PANEL`` columns, so that most of the arithmetic is in
matrix products.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitting import shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter

# Columns that are factored one by one before the rest of the matrix is updated.
PANEL = 32


def batched(b: Builder, x: Val) -> Val:
    """``x`` (..., m, n) as (batch, m, n)."""
    return b.reshape(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def expanded(b: Builder, x: Val, batch: Sequence[int]) -> Val:
    """``x`` (..., m, n) with its batch dimensions broadcast to ``batch``."""
    return b.broadcast_to(x, (*batch, *x.shape[-2:]))


def transposed(b: Builder, x: Val) -> Val:
    """The last two dimensions swapped."""
    return b.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def adjoint(b: Builder, x: Val) -> Val:
    return b.conj(transposed(b, x))


def positions(b: Builder, shape: Sequence[int], dim: int) -> Val:
    """Index along ``dim``, i32."""
    return b.iota(tuple(shape), dim, torch.int32)


def triangle(b: Builder, x: Val, upper: bool, diagonal: int = 0) -> Val:
    """``x`` with zeros below (``upper``) or above the ``diagonal``."""
    rows, columns = positions(b, x.shape, x.ndim - 2), positions(b, x.shape, x.ndim - 1)
    distance = b.sub(columns, rows)
    kept = b.ge(distance, diagonal) if upper else b.le(distance, diagonal)
    return b.select(kept, x, 0)


def identity_like(b: Builder, x: Val) -> Val:
    """Ones on the diagonal, in ``x``'s shape and dtype."""
    return b.convert(
        b.eq(positions(b, x.shape, x.ndim - 2), positions(b, x.shape, x.ndim - 1)), x.dtype
    )


def diagonal_of(b: Builder, x: Val) -> Val:
    """(batch, n) of (batch, n, n)"""
    on_diagonal = b.eq(positions(b, x.shape, 1), positions(b, x.shape, 2))
    return b.reduce_sum(b.select(on_diagonal, x, 0), [2])


def padded(b: Builder, x: Val, size: int) -> Val:
    """Square ``x`` (batch, n, n) as the leading block of a (size, size) matrix that continues the identity."""
    extra = size - x.shape[-1]
    if not extra:
        return x
    wide = b.pad(x, [0, 0, 0], [0, extra, extra])
    beyond = b.ge(positions(b, wide.shape, 1), x.shape[-1])
    return b.select(beyond, identity_like(b, wide), wide)


def rounded_up(size: int, step: int) -> int:
    return -(-size // step) * step


def block(b: Builder, x: Val, row: Val | int, column: Val | int, rows: int, columns: int) -> Val:
    """``x[:, row : row + rows, column : column + columns]`` at moving positions."""
    return b.dynamic_slice(x, [0, row, column], [x.shape[0], rows, columns])


def no_checks(op: str, check_errors: bool) -> None:
    """A program cannot raise an error that depends on data."""
    if check_errors:
        raise LoweringError(op, "check_errors=True needs the values of info")


# Triangular systems


def _substitute(b: Builder, a: Val, rhs: Val, unit: bool) -> Val:
    """x of a x = rhs row by row; ``a`` (batch, n, n) is lower triangular, its other half zero."""

    def step(i: Val, x: Val, a: Val) -> list[Val]:
        size = a.shape[1]
        row = block(b, a, i, 0, 1, size)
        here = b.eq(positions(b, row.shape, 2), b.convert(i, torch.int32))
        known = b.matmul(b.select(here, 0, row), x)
        value = b.sub(block(b, x, i, 0, 1, x.shape[2]), known)
        if not unit:
            pivot = b.reduce_sum(b.select(here, row, 0), [2], keepdim=True)
            value = b.div(value, pivot)
        return [b.dynamic_update_slice(x, value, [0, i, 0]), a]

    # Rows of x that are not solved yet hold rhs: they must not enter the product.
    masked = triangle(b, a, upper=False)
    return b.for_(a.shape[1], [rhs, masked], step)[0]


def solve_lower(b: Builder, a: Val, rhs: Val, unit: bool = False) -> Val:
    """x of a x = rhs for the lower triangle of ``a`` (batch, n, n) and ``rhs`` (batch, n, k)."""
    size = a.shape[1]
    a = triangle(b, a, upper=False)
    if size <= PANEL:
        return _substitute(b, a, rhs, unit)
    whole = rounded_up(size, PANEL)
    a = padded(b, a, whole)
    inverses = _block_inverses(b, a, unit)

    def step(j: Val, x: Val, a: Val, inverses: Val, rhs: Val) -> list[Val]:
        start = b.mul(j, PANEL)
        rows = block(b, a, start, 0, PANEL, whole)
        rest = b.sub(block(b, rhs, start, 0, PANEL, rhs.shape[2]), b.matmul(rows, x))
        solved = b.matmul(block(b, inverses, start, 0, PANEL, PANEL), rest)
        return [b.dynamic_update_slice(x, solved, [0, start, 0]), a, inverses, rhs]

    right = b.pad(rhs, [0, 0, 0], [0, whole - size, 0])
    # x is zero where it is not solved, so that a row's product takes in only what is known.
    zeros = b.full(right.shape, 0, right.dtype)
    solution = b.for_(whole // PANEL, [zeros, a, inverses, right], step)[0]
    return b.slice_dim(solution, 1, 0, size)


def _block_inverses(b: Builder, a: Val, unit: bool) -> Val:
    """Inverses of the diagonal blocks of ``a`` (batch, n, n), one below the other: (batch, n, PANEL)."""
    count = a.shape[1] // PANEL
    grid = b.reshape(a, (a.shape[0], count, PANEL, count, PANEL))
    on_diagonal = b.eq(positions(b, grid.shape, 1), positions(b, grid.shape, 3))
    blocks = b.reduce_sum(b.select(on_diagonal, grid, 0), [3])
    flat = b.reshape(blocks, (a.shape[0] * count, PANEL, PANEL))
    inverse = _substitute(b, flat, identity_like(b, flat), unit)
    return b.reshape(inverse, (a.shape[0], a.shape[1], PANEL))


def solve_triangular(
    b: Builder, a: Val, rhs: Val, *, upper: bool, left: bool = True, unit: bool = False
) -> Val:
    """x of a x = rhs, or of x a = rhs, with one triangle of ``a``; all (batch, rows, columns)."""
    if not left:
        solved = solve_triangular(
            b, transposed(b, a), transposed(b, rhs), upper=not upper, unit=unit
        )
        return transposed(b, solved)
    if upper:
        # Read from the end, an upper triangle is a lower one.
        return b.reverse(solve_lower(b, b.reverse(a, [1, 2]), b.reverse(rhs, [1]), unit), [1])
    return solve_lower(b, a, rhs, unit)


@emitter("aten.linalg_solve_triangular")
def linalg_solve_triangular(
    b: Builder,
    out: Any,
    a: Val,
    rhs: Val,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Val:
    shape = shape_of(out)
    if out.numel() == 0:
        return b.full(shape, 0, out.dtype)
    a = batched(b, expanded(b, a, shape[:-2]))
    rhs = batched(b, expanded(b, rhs, shape[:-2]))
    return b.reshape(solve_triangular(b, a, rhs, upper=upper, left=left, unit=unitriangular), shape)


@emitter("aten.triangular_solve")
def triangular_solve(
    b: Builder,
    out: Any,
    rhs: Val,
    a: Val,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Val, Val]:
    solution, coefficient = shape_of(out[0]), shape_of(out[1])
    a = expanded(b, a, coefficient[:-2])
    if out[0].numel() == 0:
        return b.full(solution, 0, out[0].dtype), a
    matrix = batched(b, a)
    if transpose:
        matrix, upper = transposed(b, matrix), not upper
    right = batched(b, expanded(b, rhs, solution[:-2]))
    result = solve_triangular(b, matrix, right, upper=upper, unit=unitriangular)
    return b.reshape(result, solution), a


# Cholesky


def cholesky_factor(b: Builder, x: Val) -> tuple[Val, Val]:
    """(L, info) of x = L L^H from the lower triangle of ``x`` (batch, n, n); info (batch,) i32 as LAPACK's."""
    size = x.shape[1]
    width = min(PANEL, size)
    whole = rounded_up(size, width)
    x = padded(b, x, whole)

    def panel(j: Val, factor: Val, info: Val, x: Val) -> list[Val]:
        start = b.mul(j, width)
        columns = block(b, x, 0, start, whole, width)
        known = adjoint(b, block(b, factor, start, 0, width, whole))
        columns = b.sub(columns, b.matmul(factor, known))
        columns, info, _ = b.for_(
            width, [columns, info, start], lambda c, *state: _cholesky_column(b, c, *state)
        )
        return [b.dynamic_update_slice(factor, columns, [0, 0, start]), info, x]

    start = [b.full(x.shape, 0, x.dtype), b.full((x.shape[0],), 0, torch.int32), x]
    factor, info, _ = b.for_(whole // width, start, panel)
    return b.slice(factor, [0, 0, 0], [x.shape[0], size, size]), info


def _cholesky_column(b: Builder, c: Val, columns: Val, info: Val, start: Val) -> list[Val]:
    """Finish column ``c`` of a panel that starts at row ``start``, and update the ones right of it."""
    batch, rows, width = columns.shape
    row = b.convert(b.add(start, c), torch.int32)
    column = block(b, columns, 0, c, rows, 1)
    pivot = b.real(b.dynamic_slice(columns, [0, b.add(start, c), c], [batch, 1, 1]))
    bad = b.reshape(b.not_(b.gt(pivot, 0)), (batch,))
    first = b.and_(bad, b.eq(info, 0))
    info = b.select(first, b.add(row, 1), info)
    root = b.convert(b.sqrt(pivot), columns.dtype)
    index = positions(b, column.shape, 1)
    below = b.select(b.gt(index, row), b.div(column, root), 0)
    finished = b.select(b.eq(index, row), root, below)
    mirrored = adjoint(b, b.dynamic_slice(finished, [0, start, 0], [batch, width, 1]))
    right = b.gt(positions(b, mirrored.shape, 2), b.convert(c, torch.int32))
    updated = b.sub(columns, b.mul(finished, b.select(right, mirrored, 0)))
    return [b.dynamic_update_slice(updated, finished, [0, 0, c]), info, start]


def _cholesky(b: Builder, x: Val, upper: bool) -> tuple[Val, Val]:
    """(factor, info) in the shape of ``x`` (..., n, n)."""
    if x.numel == 0:
        return x, b.full(x.shape[:-2], 0, torch.int32)
    matrix = batched(b, x)
    factor, info = cholesky_factor(b, adjoint(b, matrix) if upper else matrix)
    factor = adjoint(b, factor) if upper else factor
    return b.reshape(factor, x.shape), b.reshape(info, x.shape[:-2])


@emitter("aten.linalg_cholesky_ex")
def linalg_cholesky_ex(
    b: Builder, out: Any, x: Val, *, upper: bool = False, check_errors: bool = False
) -> tuple[Val, Val]:
    no_checks("aten.linalg_cholesky_ex", check_errors)
    return _cholesky(b, x, upper)


@emitter("aten.cholesky_solve", "aten._cholesky_solve_helper")
def cholesky_solve(b: Builder, out: Any, rhs: Val, factor: Val, upper: bool = False) -> Val:
    shape = shape_of(out)
    if out.numel() == 0:
        return b.full(shape, 0, out.dtype)
    lower = batched(b, expanded(b, factor, shape[:-2]))
    lower = adjoint(b, lower) if upper else lower
    half = solve_lower(b, lower, batched(b, expanded(b, rhs, shape[:-2])))
    return b.reshape(solve_triangular(b, adjoint(b, lower), half, upper=True), shape)


@emitter("aten.cholesky_inverse")
def cholesky_inverse(b: Builder, out: Any, factor: Val, upper: bool = False) -> Val:
    if factor.numel == 0:
        return factor
    lower = batched(b, factor)
    lower = adjoint(b, lower) if upper else lower
    inverse = solve_lower(b, lower, identity_like(b, lower))
    return b.reshape(b.matmul(adjoint(b, inverse), inverse), factor.shape)


# Products


@emitter("aten.linalg_cross")
def linalg_cross(b: Builder, out: Any, x: Val, y: Val, *, dim: int = -1) -> Val:
    shape = shape_of(out)
    axis = dim % len(shape)
    x, y = (b.broadcast_to(b.convert(value, out.dtype), shape) for value in (x, y))
    left = [b.slice_dim(x, axis, i, i + 1) for i in range(3)]
    right = [b.slice_dim(y, axis, i, i + 1) for i in range(3)]
    parts = [
        b.sub(b.mul(left[i], right[j]), b.mul(left[j], right[i]))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return b.concat(parts, axis)


# The Taylor polynomial of degree 18 is exact to rounding up to these 1-norms.
_TAYLOR_DEGREE = 18
_TAYLOR_NORM = {torch.float32: 3.010066362817634, torch.float64: 1.090863719290036}


@emitter("aten.linalg_matrix_exp")
def linalg_matrix_exp(b: Builder, out: Any, x: Val) -> Val:
    """Taylor series of x / 2^s, squared s times; s follows the norm of each matrix."""
    if x.numel == 0:
        return x
    matrix = batched(b, b.convert(x, torch.float32 if x.dtype.itemsize < 4 else x.dtype))
    size = b.reduce_max(b.reduce_sum(b.abs(matrix), [1]), [1])
    limit = _TAYLOR_NORM[size.dtype]
    doublings = b.ceil(b.div(b.log(b.max(b.div(size, limit), 1)), math.log(2.0)))
    # A norm that is infinite or NaN makes the result NaN without any squaring.
    doublings = b.select(b.isfinite(doublings), doublings, 0)
    scale = b.reshape(b.pow(0.5, doublings), (matrix.shape[0], 1, 1))
    small = b.mul(matrix, b.convert(b.broadcast_to(scale, matrix.shape), matrix.dtype))
    series = _taylor(b, small)
    counts = b.convert(doublings, torch.int64)

    def square(i: Val, value: Val, counts: Val) -> list[Val]:
        active = b.reshape(b.lt(b.broadcast_to(i, counts.shape), counts), (counts.shape[0], 1, 1))
        return [b.select(active, b.matmul(value, value), value), counts]

    result = b.for_(b.reduce_max(counts), [series, counts], square)[0]
    return b.convert(b.reshape(result, x.shape), x.dtype)


def _taylor(b: Builder, x: Val) -> Val:
    """Sum of x^k / k! by Horner's rule in x^3, whose coefficients are polynomials of degree 2."""
    one = identity_like(b, x)
    square = b.matmul(x, x)
    cube = b.matmul(square, x)
    result: Val | None = None
    for low in range(_TAYLOR_DEGREE // 3 * 3, -1, -3):
        part = b.mul(one, 1.0 / math.factorial(low))
        if low + 2 <= _TAYLOR_DEGREE:
            part = b.add(part, b.mul(x, 1.0 / math.factorial(low + 1)))
            part = b.add(part, b.mul(square, 1.0 / math.factorial(low + 2)))
        result = part if result is None else b.add(b.matmul(result, cube), part)
    assert result is not None
    return result
