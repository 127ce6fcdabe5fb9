"""Tensors made of nothing: constants, ranges, identities."""

import math
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import is_complex, is_integer, opmath
from torchneuron.lowering.emitting import finish, shape_of, tensor
from torchneuron.lowering.registry import emitter

Arg = Val | Number


def _filled(b: Builder, out: Any, value: Arg) -> Val:
    if not isinstance(value, Val):
        return b.full(shape_of(out), value, out.dtype)
    return finish(b, value, out)


# An uninitialised tensor reads as zeros.
@emitter(
    "aten.zeros",
    "aten.zeros_like",
    "aten.new_zeros",
    "aten.zero",
    "aten.empty.memory_format",
    "aten.empty_like",
    "aten.empty_strided",
    "aten.empty_permuted",
    "aten.new_empty",
    "aten.new_empty_strided",
    "aten._efficientzerotensor",
)
def zeros(b: Builder, out: Any, *_: Any, **__: Any) -> Val:
    return b.full(shape_of(out), 0, out.dtype)


@emitter("aten.ones", "aten.ones_like", "aten.new_ones")
def ones(b: Builder, out: Any, *_: Any, **__: Any) -> Val:
    return b.full(shape_of(out), 1, out.dtype)


@emitter("aten.full", "aten.full_like", "aten.new_full", "aten.fill.Scalar", "aten.fill.Tensor")
def full(
    b: Builder, out: Any, _: Any, fill_value: Arg = 0, value: Arg | None = None, **__: Any
) -> Val:
    return _filled(b, out, fill_value if value is None else value)


@emitter("aten.scalar_tensor")
def scalar_tensor(b: Builder, out: Any, s: Arg, **_: Any) -> Val:
    return _filled(b, out, s)


# Ranges. Their bounds decide the shape, so they are part of the program.

_RANGE = ("start", "end", "step")


def _range(b: Builder, out: Any, start: Number, step: Number) -> Val:
    dtype = torch.int64 if not out.dtype.is_floating_point else opmath(out.dtype)
    steps = b.convert(b.iota(shape_of(out), 0), dtype)
    return finish(b, b.add(b.mul(steps, step), start), out)


@emitter("aten.arange", static=_RANGE)
def arange(b: Builder, out: Any, end: Number, **_: Any) -> Val:
    return _range(b, out, 0, 1)


@emitter("aten.arange.start", static=_RANGE)
def arange_start(b: Builder, out: Any, start: Number, end: Number, **_: Any) -> Val:
    return _range(b, out, start, 1)


@emitter("aten.arange.start_step", "aten.range.step", "aten.range", static=_RANGE)
def arange_step(
    b: Builder, out: Any, start: Number, end: Number, step: Number = 1, **_: Any
) -> Val:
    return _range(b, out, start, step)


def _points(b: Builder, first: Val, last: Val, steps: int) -> Val:
    """``steps`` points, two at least, counted from the nearer end."""
    # XLA would multiply by the reciprocal of a constant, which is another number.
    (count,) = b.optimization_barrier([b.full((), steps - 1, first.dtype)])
    step = b.div(b.sub(last, first), count)
    index = b.convert(b.iota((steps,), 0), first.dtype)
    rising = b.add(b.mul(index, step), first)
    falling = b.sub(last, b.mul(b.sub(steps - 1, index), step))
    return b.select(b.lt(b.iota((steps,), 0), steps // 2), rising, falling)


def _ends(b: Builder, out: Any, *ends: Arg) -> list[Val]:
    """Bounds in opmath; between whole ones, truncated as PyTorch does, one counts in doubles."""
    if is_integer(out.dtype):
        truncated = [b.convert(tensor(b, end, torch.float64), out.dtype) for end in ends]
        return [b.convert(end, torch.float64) for end in truncated]
    compute = out.dtype if is_complex(out.dtype) else opmath(out.dtype)
    return [tensor(b, end, compute) for end in ends]


@emitter(
    "aten.linspace",
    "aten.linspace.Tensor_Tensor",
    "aten.linspace.Tensor_Scalar",
    "aten.linspace.Scalar_Tensor",
)
def linspace(b: Builder, out: Any, start: Arg, end: Arg, steps: int, **_: Any) -> Val:
    first, last = _ends(b, out, start, end)
    return finish(b, first if steps <= 1 else _points(b, first, last, steps), out)


@emitter(
    "aten.logspace",
    "aten.logspace.Tensor_Tensor",
    "aten.logspace.Tensor_Scalar",
    "aten.logspace.Scalar_Tensor",
    static=("base",),
)
def logspace(
    b: Builder, out: Any, start: Arg, end: Arg, steps: int, base: float = 10.0, **_: Any
) -> Val:
    first, last = _ends(b, out, start, end)
    # PyTorch does not truncate the only one.
    exponent = tensor(b, start, first.dtype) if steps <= 1 else _points(b, first, last, steps)
    if is_complex(exponent.dtype):
        return finish(b, b.exp(b.mul(exponent, math.log(base))), out)
    return finish(b, b.pow(base, exponent), out)


# Matrices


@emitter("aten.eye", "aten.eye.m")
def eye(b: Builder, out: Any, *_: Any, **__: Any) -> Val:
    shape = shape_of(out)
    return finish(b, b.eq(b.iota(shape, 0, torch.int32), b.iota(shape, 1, torch.int32)), out)


@emitter("aten.tril_indices")
def tril_indices(b: Builder, out: Any, row: int, col: int, offset: int = 0, **_: Any) -> Val:
    return b.constant(torch.tril_indices(row, col, offset), out.dtype)


@emitter("aten.triu_indices")
def triu_indices(b: Builder, out: Any, row: int, col: int, offset: int = 0, **_: Any) -> Val:
    return b.constant(torch.triu_indices(row, col, offset), out.dtype)
