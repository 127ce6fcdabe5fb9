"""Comparison, logic and bit operations."""

from collections.abc import Callable
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import is_complex
from torchneuron.lowering.emitting import finish, operand, tensor
from torchneuron.lowering.registry import emitter

Arg = Val | Number


def _register_comparison(name: str, direction: str) -> None:
    @emitter(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def compare(b: Builder, out: Any, x: Val, y: Arg) -> Val:
        dtype = b.result_type(x, y)
        return finish(b, b.compare(direction, b.convert(x, dtype), tensor(b, y, dtype)), out)


for _direction in ("eq", "ne", "lt", "le", "gt", "ge"):
    _register_comparison(_direction, _direction.upper())


def _register_logic(name: str, combine: Callable[[Builder, Val, Val], Val]) -> None:
    @emitter(f"aten.logical_{name}")
    def logical(b: Builder, out: Any, x: Val, y: Val) -> Val:
        return finish(b, combine(b, b.convert(x, torch.bool), b.convert(y, torch.bool)), out)


def _register_bitwise(name: str, combine: Callable[[Builder, Val, Val], Val]) -> None:
    aliases = [f"aten.__{name}__.Tensor", f"aten.__{name}__.Scalar"]

    @emitter(
        *(f"aten.bitwise_{name}.{overload}" for overload in ("Tensor", "Scalar", "Scalar_Tensor")),
        *aliases,
    )
    def bitwise(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
        return finish(b, combine(b, tensor(b, x, out.dtype), tensor(b, y, out.dtype)), out)


for _name, _combine in (
    ("and", lambda b, x, y: b.and_(x, y)),
    ("or", lambda b, x, y: b.or_(x, y)),
    ("xor", lambda b, x, y: b.xor(x, y)),
):
    _register_logic(_name, _combine)
    _register_bitwise(_name, _combine)


@emitter("aten.logical_not")
def logical_not(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.eq(x, 0), out)


@emitter("aten.bitwise_not")
def bitwise_not(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.not_(x), out)


_SHIFT_OVERLOADS = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")


@emitter(
    *(f"aten.bitwise_left_shift.{overload}" for overload in _SHIFT_OVERLOADS),
    "aten.__lshift__.Tensor",
    "aten.__lshift__.Scalar",
)
def left_shift(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    # An amount that is negative or too large gives 0 in both PyTorch and XLA.
    return finish(b, b.shift_left(tensor(b, x, out.dtype), operand(b, y, out.dtype)), out)


@emitter(
    *(f"aten.bitwise_right_shift.{overload}" for overload in _SHIFT_OVERLOADS),
    "aten.__rshift__.Tensor",
    "aten.__rshift__.Scalar",
)
def right_shift(b: Builder, out: Any, x: Arg, y: Arg) -> Val:
    return finish(b, b.shift_right(tensor(b, x, out.dtype), operand(b, y, out.dtype)), out)


# Classification


@emitter("aten.isnan")
def isnan(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.isnan(x), out)


@emitter("aten.isinf")
def isinf(b: Builder, out: Any, x: Val) -> Val:
    if is_complex(x.dtype):
        return finish(b, b.or_(_is_infinite(b, b.real(x)), _is_infinite(b, b.imag(x))), out)
    return finish(b, _is_infinite(b, x), out)


def _is_infinite(b: Builder, x: Val) -> Val:
    if not x.dtype.is_floating_point:
        return b.full(x.shape, False, torch.bool)
    return b.and_(b.not_(b.isfinite(x)), b.eq(x, x))


@emitter("aten.isposinf")
def isposinf(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.and_(_is_infinite(b, x), b.gt(x, 0)), out)


@emitter("aten.isneginf")
def isneginf(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.and_(_is_infinite(b, x), b.lt(x, 0)), out)


@emitter("aten.isfinite")
def isfinite(b: Builder, out: Any, x: Val) -> Val:
    return finish(b, b.isfinite(x), out)
