"""Reductions over dimensions."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import is_complex, opmath
from torchneuron.lowering.emitting import finish
from torchneuron.lowering.registry import emitter

Dims = Sequence[int] | int | None


def axes_of(x: Val, dims: Dims) -> list[int]:
    """The dimensions to reduce, in order; none or an empty list means all."""
    if isinstance(dims, int):
        dims = [dims]
    if not dims:
        return list(range(x.ndim))
    return sorted({dim % x.ndim for dim in dims}) if x.ndim else []


def _count(x: Val, axes: Sequence[int]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


# Sums and products


@emitter("aten.sum", "aten.sum.dim_IntList")
def sum_(b: Builder, out: Any, x: Val, dim: Dims = None, keepdim: bool = False, **_: Any) -> Val:
    value = b.convert(x, opmath(out.dtype))
    return finish(b, b.reduce_sum(value, axes_of(x, dim), keepdim), out)


@emitter("aten.mean", "aten.mean.dim")
def mean(b: Builder, out: Any, x: Val, dim: Dims = None, keepdim: bool = False, **_: Any) -> Val:
    value = b.convert(x, opmath(out.dtype))
    return finish(b, _mean(b, value, axes_of(x, dim), keepdim), out)


def _mean(b: Builder, x: Val, axes: Sequence[int], keepdim: bool) -> Val:
    return b.div(b.reduce_sum(x, axes, keepdim), float(_count(x, axes)))


@emitter("aten.nansum")
def nansum(b: Builder, out: Any, x: Val, dim: Dims = None, keepdim: bool = False, **_: Any) -> Val:
    value = b.convert(x, opmath(out.dtype))
    value = b.select(b.isnan(value), 0, value)
    return finish(b, b.reduce_sum(value, axes_of(x, dim), keepdim), out)


@emitter("aten.prod", "aten.prod.dim_int")
def prod(b: Builder, out: Any, x: Val, dim: Dims = None, keepdim: bool = False, **_: Any) -> Val:
    value = b.convert(x, opmath(out.dtype))
    return finish(b, b.reduce_prod(value, axes_of(x, dim), keepdim), out)


@emitter("aten.count_nonzero", "aten.count_nonzero.dim_IntList")
def count_nonzero(b: Builder, out: Any, x: Val, dim: Dims = None) -> Val:
    nonzero = b.convert(b.convert(x, torch.bool), torch.int64)
    return finish(b, b.reduce_sum(nonzero, axes_of(x, dim)), out)


@emitter("aten.trace")
def trace(b: Builder, out: Any, x: Val) -> Val:
    on_diagonal = b.eq(b.iota(x.shape, 0, torch.int32), b.iota(x.shape, 1, torch.int32))
    kept = b.select(on_diagonal, b.convert(x, opmath(out.dtype)), 0)
    return finish(b, b.reduce_sum(kept), out)


# Extrema


@emitter("aten.amax", "aten.max")
def amax(b: Builder, out: Any, x: Val, dim: Dims = None, keepdim: bool = False) -> Val:
    return finish(b, b.reduce_max(x, axes_of(x, dim), keepdim), out)


@emitter("aten.amin", "aten.min")
def amin(b: Builder, out: Any, x: Val, dim: Dims = None, keepdim: bool = False) -> Val:
    return finish(b, b.reduce_min(x, axes_of(x, dim), keepdim), out)


@emitter("aten.aminmax")
def aminmax(
    b: Builder, out: Any, x: Val, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Val, Val]:
    return amin(b, out[0], x, dim, keepdim), amax(b, out[1], x, dim, keepdim)


def first_index(b: Builder, hit: Val, axis: int) -> Val:
    """Smallest index along ``axis`` where ``hit`` holds, kept as a dimension of size 1; i64."""
    size = hit.shape[axis]
    dtype = torch.int32 if size < 2**31 else torch.int64
    index = b.select(hit, b.iota(hit.shape, axis, dtype), size)
    return b.convert(b.reduce_min(index, [axis], keepdim=True), torch.int64)


def _extremum(b: Builder, x: Val, axis: int, largest: bool) -> tuple[Val, Val]:
    """Extreme value along ``axis`` and its first index, both with the dimension kept; a NaN wins.

    Two plain reductions vectorise; one over (value, index) pairs does not.
    """
    value = (
        b.reduce_max(x, [axis], keepdim=True) if largest else b.reduce_min(x, [axis], keepdim=True)
    )
    hit = b.or_(b.eq(x, value), b.isnan(x))
    return value, first_index(b, hit, axis)


def _extremum_dim(
    b: Builder, out: Any, x: Val, dim: int, keepdim: bool, largest: bool
) -> tuple[Val, Val]:
    if x.ndim == 0:
        return x, b.full((), 0, torch.int64)
    axis = dim % x.ndim
    value, index = _extremum(b, x, axis, largest)
    if not keepdim:
        value, index = b.squeeze(value, axis), b.squeeze(index, axis)
    return finish(b, value, out[0]), finish(b, index, out[1])


@emitter("aten.max.dim")
def max_dim(b: Builder, out: Any, x: Val, dim: int, keepdim: bool = False) -> tuple[Val, Val]:
    return _extremum_dim(b, out, x, dim, keepdim, largest=True)


@emitter("aten.min.dim")
def min_dim(b: Builder, out: Any, x: Val, dim: int, keepdim: bool = False) -> tuple[Val, Val]:
    return _extremum_dim(b, out, x, dim, keepdim, largest=False)


def _arg_extremum(b: Builder, out: Any, x: Val, dim: int | None, largest: bool) -> Val:
    if dim is None or x.ndim == 0:
        x, dim = b.reshape(x, (x.numel,)), 0
    _, index = _extremum(b, x, dim % x.ndim, largest)
    return b.reshape(index, tuple(out.shape))


@emitter("aten.argmax")
def argmax(b: Builder, out: Any, x: Val, dim: int | None = None, keepdim: bool = False) -> Val:
    return _arg_extremum(b, out, x, dim, largest=True)


@emitter("aten.argmin")
def argmin(b: Builder, out: Any, x: Val, dim: int | None = None, keepdim: bool = False) -> Val:
    return _arg_extremum(b, out, x, dim, largest=False)


# Logic


def _logical(name: str, reduce: Callable[[Builder, Val, list[int], bool], Val]) -> None:
    @emitter(f"aten.{name}", f"aten.{name}.dim")
    def logical(b: Builder, out: Any, x: Val, dim: Dims = None, keepdim: bool = False) -> Val:
        return finish(b, reduce(b, b.convert(x, torch.bool), axes_of(x, dim), keepdim), out)

    @emitter(f"aten.{name}.dims")
    def logical_dims(b: Builder, out: Any, x: Val, dim: Dims = None, keepdim: bool = False) -> Val:
        # Unlike everywhere else an empty list reduces nothing here.
        axes = [] if dim is not None and not dim else axes_of(x, dim)
        return finish(b, reduce(b, b.convert(x, torch.bool), axes, keepdim), out)


_logical("any", lambda b, x, axes, keepdim: b.reduce_or(x, axes, keepdim))
_logical("all", lambda b, x, axes, keepdim: b.reduce_and(x, axes, keepdim))


# Spread


def _variance(b: Builder, x: Val, dims: Dims, correction: Number | None) -> tuple[Val, Val]:
    """(variance, mean) with the dimensions kept, in opmath."""
    axes = axes_of(x, dims)
    value = b.convert(x, opmath(x.dtype))
    average = _mean(b, value, axes, keepdim=True)
    gap = b.sub(value, average)
    if is_complex(x.dtype):
        squares = b.add(b.mul(b.real(gap), b.real(gap)), b.mul(b.imag(gap), b.imag(gap)))
    else:
        squares = b.mul(gap, gap)
    freedom = max(0.0, _count(x, axes) - float(1 if correction is None else correction.real))
    return b.div(b.reduce_sum(squares, axes, keepdim=True), freedom), average


def _drop(b: Builder, x: Val, out: torch.Tensor) -> Val:
    """Kept dimensions as the op gives them, rounded."""
    return finish(b, b.reshape(x, tuple(out.shape)), out)


@emitter("aten.var.correction", static=("correction",))
def var(
    b: Builder,
    out: Any,
    x: Val,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> Val:
    return _drop(b, _variance(b, x, dim, correction)[0], out)


@emitter("aten.std.correction", static=("correction",))
def std(
    b: Builder,
    out: Any,
    x: Val,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> Val:
    return _drop(b, b.sqrt(_variance(b, x, dim, correction)[0]), out)


@emitter("aten.var_mean.correction", static=("correction",))
def var_mean(
    b: Builder,
    out: Any,
    x: Val,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> tuple[Val, Val]:
    variance, average = _variance(b, x, dim, correction)
    return _drop(b, variance, out[0]), _drop(b, average, out[1])


@emitter("aten.std_mean.correction", static=("correction",))
def std_mean(
    b: Builder,
    out: Any,
    x: Val,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> tuple[Val, Val]:
    variance, average = _variance(b, x, dim, correction)
    return _drop(b, b.sqrt(variance), out[0]), _drop(b, average, out[1])


# Norms


def _norm(b: Builder, x: Val, order: float, axes: list[int], keepdim: bool) -> Val:
    """Vector norm of ``x``, which is in opmath."""
    size = b.abs(x)
    if order == math.inf:
        return b.reduce_max(size, axes, keepdim)
    if order == -math.inf:
        return b.reduce_min(size, axes, keepdim)
    if order == 0:
        return b.reduce_sum(b.convert(b.ne(size, 0), size.dtype), axes, keepdim)
    if order == 1:
        return b.reduce_sum(size, axes, keepdim)
    if order == 2:
        if is_complex(x.dtype):
            squares = b.add(b.mul(b.real(x), b.real(x)), b.mul(b.imag(x), b.imag(x)))
        else:
            squares = b.mul(x, x)
        return b.sqrt(b.reduce_sum(squares, axes, keepdim))
    return b.pow(b.reduce_sum(b.pow(size, order), axes, keepdim), 1.0 / order)


@emitter("aten.linalg_vector_norm", static=("ord",))
def linalg_vector_norm(
    b: Builder,
    out: Any,
    x: Val,
    ord: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Val:
    value = b.convert(x, opmath(dtype or x.dtype))
    return finish(b, _norm(b, value, float(ord.real), axes_of(x, dim), keepdim), out)


@emitter(
    "aten.norm.Scalar",
    "aten.norm.ScalarOpt_dim",
    "aten.norm.ScalarOpt_dtype",
    "aten.norm.ScalarOpt_dim_dtype",
    static=("p",),
)
def norm(
    b: Builder,
    out: Any,
    x: Val,
    p: Number | None = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Val:
    order = 2.0 if p is None else float(p.real)
    value = b.convert(x, opmath(dtype or x.dtype))
    return finish(b, _norm(b, value, order, axes_of(x, dim), keepdim), out)


@emitter("aten.logsumexp")
def logsumexp(b: Builder, out: Any, x: Val, dim: Dims, keepdim: bool = False) -> Val:
    value = b.convert(x, opmath(out.dtype))
    axes = axes_of(x, dim)
    if _count(x, axes) == 0:
        return finish(b, b.log(b.reduce_sum(b.exp(value), axes, keepdim)), out)
    magnitudes = b.real(value) if is_complex(value.dtype) else value
    highest = b.reduce_max(magnitudes, axes, keepdim=True)
    shift = b.convert(b.select(b.eq(b.abs(highest), float("inf")), 0, highest), value.dtype)
    total = b.reduce_sum(b.exp(b.sub(value, shift)), axes, keepdim=True)
    return _drop(b, b.add(b.log(total), shift), out)
