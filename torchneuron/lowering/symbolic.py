"""Arithmetic on numbers that are operands of the program: what Python does with symbolic sizes and
with integers that a loop carries.

Such a number is a 0-d ``Val`` of int64, float64 or bool marked ``wrapped``.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.errors import LoweringError

Number = bool | int | float

_KINDS: dict[type, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
}


def wrap(value: Val) -> Val:
    """``value`` as a number."""
    return Val(value.ir, value.dtype, value.shape, wrapped=True)


def number(b: Builder, value: Any) -> Val:
    """A Python number or 0-d value as an operand of Python's arithmetic."""
    if isinstance(value, Val):
        if value.shape != ():
            raise LoweringError("number", f"{value!r} is no scalar")
        if value.dtype is torch.bool or not value.dtype.is_floating_point:
            kind = torch.bool if value.dtype is torch.bool else torch.int64
            return wrap(b.convert(value, kind))
        return wrap(b.convert(value, torch.float64))
    return wrap(b.full((), value, _KINDS[type(value)]))


def _common(b: Builder, values: Sequence[Val]) -> list[Val]:
    """All in the kind that Python would compute in; bools count as integers."""
    kind = torch.int64
    if any(value.dtype.is_floating_point for value in values):
        kind = torch.float64
    return [b.convert(value, kind) for value in values]


def _floor_divide(b: Builder, x: Val, y: Val) -> Val:
    if x.dtype.is_floating_point:
        return b.floor(b.div(x, y))
    quotient = b.div(x, y)
    inexact = b.ne(b.mul(quotient, y), x)
    opposite = b.ne(b.lt(x, 0), b.lt(y, 0))
    return b.select(b.and_(inexact, opposite), b.sub(quotient, 1), quotient)


def _modulo(b: Builder, x: Val, y: Val) -> Val:
    remainder = b.rem(x, y)
    wrong = b.and_(b.ne(remainder, 0), b.ne(b.lt(remainder, 0), b.lt(y, 0)))
    return b.select(wrong, b.add(remainder, y), remainder)


def _true_divide(b: Builder, x: Val, y: Val) -> Val:
    return b.div(b.convert(x, torch.float64), b.convert(y, torch.float64))


_ARITHMETIC: dict[Any, Callable[..., Val]] = {
    operator.add: lambda b, x, y: b.add(x, y),
    operator.sub: lambda b, x, y: b.sub(x, y),
    operator.mul: lambda b, x, y: b.mul(x, y),
    operator.floordiv: _floor_divide,
    operator.mod: _modulo,
    operator.truediv: _true_divide,
    operator.neg: lambda b, x: b.neg(x),
    operator.pos: lambda b, x: x,
    operator.abs: lambda b, x: b.abs(x),
    operator.lt: lambda b, x, y: b.lt(x, y),
    operator.le: lambda b, x, y: b.le(x, y),
    operator.gt: lambda b, x, y: b.gt(x, y),
    operator.ge: lambda b, x, y: b.ge(x, y),
    operator.eq: lambda b, x, y: b.eq(x, y),
    operator.ne: lambda b, x, y: b.ne(x, y),
    torch.sym_max: lambda b, x, y: b.max(x, y),
    torch.sym_min: lambda b, x, y: b.min(x, y),
    max: lambda b, x, y: b.max(x, y),
    min: lambda b, x, y: b.min(x, y),
}


def _logical(b: Builder, target: Any, values: Sequence[Val]) -> Val | None:
    """What keeps bools bools."""
    if target in (operator.not_, torch.sym_not):
        return b.not_(b.convert(values[0], torch.bool))
    if target in (operator.and_, operator.or_, operator.xor):
        x, y = values
        if x.dtype is not y.dtype:
            x, y = _common(b, values)
        by_target = {operator.and_: b.and_, operator.or_: b.or_, operator.xor: b.xor}
        return by_target[target](x, y)
    return None


def _conversion(b: Builder, target: Any, x: Val) -> Val | None:
    if target in (torch.sym_float, float):
        return b.convert(x, torch.float64)
    if target in (torch.sym_int, int, math.trunc):
        return b.convert(x, torch.int64)
    if target is bool:
        return b.convert(x, torch.bool)
    if target in (math.floor, math.ceil):
        rounded = b.floor(x) if target is math.floor else b.ceil(x)
        return b.convert(rounded, torch.int64)
    return None


def call(b: Builder, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """``target(*args)``, a function of Python numbers of which some are operands; the result is a
    number again. LoweringError for functions that have no such form.
    """
    if kwargs:
        raise LoweringError(target, f"takes no {', '.join(kwargs)} in a program")
    if target is torch.sym_sum:
        args = args[0]
    values = [number(b, arg) for arg in args]
    if target is torch.sym_sum:
        total = values[0]
        for value in values[1:]:
            total = b.add(*_common(b, [total, value]))
        return wrap(total)
    if target is torch.sym_ite:
        return wrap(b.select(b.convert(values[0], torch.bool), *_common(b, values[1:])))
    result = _logical(b, target, values)
    if result is None and len(values) == 1:
        result = _conversion(b, target, values[0])
    if result is None:
        arithmetic = _ARITHMETIC.get(target)
        if arithmetic is None:
            raise LoweringError(target, "no function of numbers that only the program knows")
        result = arithmetic(b, *_common(b, values))
    return wrap(result)
