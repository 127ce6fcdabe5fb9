"""QR factorisation by Householder reflections H = 1 - tau v v^H, as LAPACK defines and stores them."""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import is_complex
from torchneuron.lowering.emitters.linalg import (
    adjoint,
    batched,
    block,
    identity_like,
    positions,
    triangle,
)
from torchneuron.lowering.emitting import shape_of
from torchneuron.lowering.registry import emitter, shape_rule


def reflections(b: Builder, x: Val) -> tuple[Val, Val]:
    """(packed, tau) of ``x`` (batch, m, n): R above, the vectors v below the diagonal; tau (batch, min(m, n))."""
    batch, rows, columns = x.shape
    rank = min(rows, columns)

    def step(i: Val, x: Val, taus: Val) -> list[Val]:
        column = block(b, x, 0, i, rows, 1)
        line = _line(b, i)
        index = positions(b, column.shape, 1)
        alpha = block(b, x, i, i, 1, 1)
        tail = b.select(b.gt(index, line), column, 0)
        beta, tau = _reflector(b, alpha, tail)
        moves = b.ne(tau, 0)
        divisor = b.select(moves, b.sub(alpha, b.convert(beta, x.dtype)), 1)
        vector = b.select(b.eq(index, line), 1, b.div(tail, divisor))
        change = b.mul(b.conj(tau), b.matmul(adjoint(b, vector), x))
        right = b.gt(positions(b, change.shape, 2), line)
        updated = b.sub(x, b.mul(vector, b.select(right, change, 0)))
        diagonal = b.select(moves, b.convert(beta, x.dtype), alpha)
        stored = b.select(b.eq(index, line), b.broadcast_to(diagonal, column.shape), vector)
        stored = b.select(b.lt(index, line), column, stored)
        taus = b.dynamic_update_slice(taus, b.reshape(tau, (batch, 1)), [0, i])
        return [b.dynamic_update_slice(updated, stored, [0, 0, i]), taus]

    packed, taus = b.for_(rank, [x, b.full((batch, rank), 0, x.dtype)], step)
    return packed, taus


def _line(b: Builder, i: Val) -> Val:
    return b.convert(i, positions(b, (1,), 0).dtype)


def _reflector(b: Builder, alpha: Val, tail: Val) -> tuple[Val, Val]:
    """(beta, tau), both (batch, 1, 1): the reflection takes (alpha, tail) to (beta, 0); tau is 0 if it is that."""
    # Scaled by the largest element: squares of large numbers must not overflow.
    largest = b.reduce_max(b.max(b.abs(tail), b.abs(alpha)), [1], keepdim=True)
    scale = b.select(b.gt(largest, 0), largest, 1)
    squares = [b.div(b.abs(part), scale) for part in (tail, alpha)]
    tail_square = b.reduce_sum(b.mul(squares[0], squares[0]), [1], keepdim=True)
    norm = b.mul(scale, b.sqrt(b.add(tail_square, b.mul(squares[1], squares[1]))))
    beta = b.select(b.ge(b.real(alpha), 0), b.neg(norm), norm)
    flat = b.eq(b.reduce_max(b.abs(tail), [1], keepdim=True), 0)
    if is_complex(alpha.dtype):
        flat = b.and_(flat, b.eq(b.imag(alpha), 0))
    wide = b.convert(beta, alpha.dtype)
    tau = b.div(b.sub(wide, alpha), b.select(b.eq(wide, 0), 1, wide))
    return beta, b.select(flat, 0, tau)


def _vector(b: Builder, packed: Val, i: Val) -> Val:
    """v number ``i`` of ``packed`` (batch, m, k) as (batch, m, 1)."""
    column = block(b, packed, 0, i, packed.shape[1], 1)
    index, line = positions(b, column.shape, 1), _line(b, i)
    return b.select(b.eq(index, line), 1, b.select(b.gt(index, line), column, 0))


def apply_reflections(
    b: Builder, packed: Val, taus: Val, x: Val, forward: bool = False, conjugate: bool = False
) -> Val:
    """H_1 H_2 .. H_k x, or with ``forward`` H_k .. H_1 x; ``conjugate`` takes the adjoints of the H_i."""
    batch, count = taus.shape

    def step(i: Val, x: Val, packed: Val, taus: Val) -> list[Val]:
        k = i if forward else b.sub(count - 1, i)
        tau = b.reshape(b.dynamic_slice(taus, [0, k], [batch, 1]), (batch, 1, 1))
        vector = _vector(b, packed, k)
        change = b.mul(b.conj(tau) if conjugate else tau, b.matmul(adjoint(b, vector), x))
        return [b.sub(x, b.mul(vector, change)), packed, taus]

    return b.for_(count, [x, packed, taus], step)[0]


def _orthogonal(b: Builder, packed: Val, taus: Val, columns: int) -> Val:
    """The first ``columns`` columns of Q (batch, m, m)."""
    start = identity_like(b, b.full((packed.shape[0], packed.shape[1], columns), 0, packed.dtype))
    return apply_reflections(b, packed, taus, start)


@emitter("aten.geqrf")
def geqrf(b: Builder, out: Any, x: Val) -> tuple[Val, Val]:
    if x.numel == 0:
        return x, b.full(shape_of(out[1]), 0, x.dtype)
    packed, taus = reflections(b, batched(b, x))
    return b.reshape(packed, x.shape), b.reshape(taus, shape_of(out[1]))


@shape_rule("aten.geqrf")
def _geqrf_shapes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), x.new_empty((*x.shape[:-2], min(x.shape[-2:])))


@emitter("aten.linalg_householder_product", "aten.orgqr")
def linalg_householder_product(b: Builder, out: Any, x: Val, tau: Val) -> Val:
    if x.numel == 0 or tau.numel == 0:
        return identity_like(b, x)
    packed = batched(b, x)
    taus = b.reshape(tau, (packed.shape[0], tau.shape[-1]))
    return b.reshape(_orthogonal(b, packed, taus, x.shape[-1]), x.shape)


@emitter("aten.ormqr")
def ormqr(
    b: Builder, out: Any, x: Val, tau: Val, other: Val, left: bool = True, transpose: bool = False
) -> Val:
    shape = shape_of(out)
    if out.numel() == 0 or tau.numel == 0:
        return b.broadcast_to(other, shape)
    packed = batched(b, x)
    taus = b.reshape(tau, (packed.shape[0], tau.shape[-1]))
    target = batched(b, other)
    if left:
        result = apply_reflections(b, packed, taus, target, forward=transpose, conjugate=transpose)
        return b.reshape(result, shape)
    # C Q is (Q^H C^H)^H.
    turned = apply_reflections(
        b, packed, taus, adjoint(b, target), forward=not transpose, conjugate=not transpose
    )
    return b.reshape(adjoint(b, turned), shape)


@emitter("aten.linalg_qr")
def linalg_qr(b: Builder, out: Any, x: Val, mode: str = "reduced") -> tuple[Val, Val]:
    shapes = [shape_of(one) for one in out]
    rows, columns = x.shape[-2:]
    if x.numel == 0:
        nothing = b.full(shapes[0], 0, x.dtype)
        return nothing if mode == "r" else identity_like(b, nothing), b.full(shapes[1], 0, x.dtype)
    packed, taus = reflections(b, batched(b, x))
    kept = rows if mode == "complete" else min(rows, columns)
    upper = triangle(b, b.slice_dim(packed, 1, 0, kept), upper=True)
    if mode == "r":
        return b.full(shapes[0], 0, x.dtype), b.reshape(upper, shapes[1])
    return b.reshape(_orthogonal(b, packed, taus, kept), shapes[0]), b.reshape(upper, shapes[1])
