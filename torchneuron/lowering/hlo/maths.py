"""Elementwise ops. Operands broadcast against each other, and a Python number takes the other
operand's dtype.
"""

import torch

from torchneuron.lowering.dtypes import complex_of, is_complex, is_integer, is_unsigned, real_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.hlo.core import Number
from torchneuron.lowering.hlo.shape import Shape, broadcast_shapes
from torchneuron.lowering.hlo.value import Val

Operand = Val | Number
_OF_AN_ORDER = ("maximum", "minimum", "remainder")


def _is_harmless(divisor: Operand) -> bool:
    return not isinstance(divisor, Val) and divisor not in (0, -1)


def _require_order(name: str, x: Val) -> None:
    """XLA:CPU ends the process where it puts complex constants in order."""
    if is_complex(x.dtype):
        raise LoweringError(name, "complex numbers have no order")


class Maths(Shape):
    """Elementwise ops."""

    def together(self, *operands: Operand) -> list[Val]:
        """The operands as values of one dtype and shape; TypeError if their dtypes differ."""
        values = [operand for operand in operands if isinstance(operand, Val)]
        dtypes = {value.dtype for value in values}
        if len(dtypes) != 1:
            raise TypeError(
                f"operands of dtypes {[str(value.dtype) for value in values]}: convert them first"
            )
        shape = broadcast_shapes(*(value.shape for value in values))
        dtype = dtypes.pop()
        return [
            self.broadcast_to(operand, shape)
            if isinstance(operand, Val)
            else self.full(shape, operand, dtype)
            for operand in operands
        ]

    def unary(self, name: str, x: Val, dtype: torch.dtype | None = None) -> Val:
        """The StableHLO op ``name`` of one operand."""
        return self.op1(f"stablehlo.{name}", [x], dtype or x.dtype, x.shape)

    def binary(self, name: str, x: Operand, y: Operand) -> Val:
        """The StableHLO op ``name`` of two operands."""
        left, right = self.together(x, y)
        if name in _OF_AN_ORDER:
            _require_order(name, left)
        return self.op1(f"stablehlo.{name}", [left, right], left.dtype, left.shape)

    def chlo(self, name: str, *operands: Operand) -> Val:
        """An elementwise op of the CHLO dialect (erf, lgamma, ...), expanded when the module is
        finished.
        """
        self.has_chlo = True
        values = self.together(*operands)
        return self.op1(f"chlo.{name}", values, values[0].dtype, values[0].shape)

    # Arithmetic

    def add(self, x: Operand, y: Operand) -> Val:
        """Sum; of bools, or."""
        return self.binary("add", x, y)

    def sub(self, x: Operand, y: Operand) -> Val:
        """Difference."""
        return self.binary("subtract", x, y)

    def mul(self, x: Operand, y: Operand) -> Val:
        """Product; of bools, and."""
        return self.binary("multiply", x, y)

    def div(self, x: Operand, y: Operand) -> Val:
        """True division of floats; integers truncate, and give -1 by zero."""
        quotient, left, zero, minus_one = self._quotient("divide", x, y)
        if zero is None or minus_one is None:
            return quotient
        all_bits = self.not_(self.full(left.shape, 0, left.dtype))
        return self.select(zero, all_bits, self.select(minus_one, self.neg(left), quotient))

    def rem(self, x: Operand, y: Operand) -> Val:
        """Remainder with the sign of ``x`` (C's); of a division by zero, ``x``."""
        rest, left, zero, _ = self._quotient("remainder", x, y)
        return rest if zero is None else self.select(zero, left, rest)

    def _quotient(
        self, name: str, x: Operand, y: Operand
    ) -> tuple[Val, Val, Val | None, Val | None]:
        """Of integers by 1 where ``y`` is 0 or -1: XLA:CPU ends the process where it computes such
        a quotient at compile time. With it ``x``, and where ``y`` is 0, and -1, if it may be.
        """
        left, right = self.together(x, y)
        if not is_integer(left.dtype) or _is_harmless(y):
            return self.binary(name, left, right), left, None, None
        zero = self.eq(right, 0)
        minus_one = zero if is_unsigned(right.dtype) else self.eq(right, -1)
        harmless = self.select(self.or_(zero, minus_one), 1, right)
        return self.binary(name, left, harmless), left, zero, minus_one

    def pow(self, x: Operand, y: Operand) -> Val:
        """``x`` to the power ``y``."""
        return self.binary("power", x, y)

    def max(self, x: Operand, y: Operand) -> Val:
        """The larger; NaN if either is."""
        return self.binary("maximum", x, y)

    def min(self, x: Operand, y: Operand) -> Val:
        """The smaller; NaN if either is."""
        return self.binary("minimum", x, y)

    def atan2(self, x: Operand, y: Operand) -> Val:
        """Angle of the point (y, x)."""
        return self.binary("atan2", x, y)

    def neg(self, x: Val) -> Val:
        """``-x``"""
        return self.unary("negate", x)

    def abs(self, x: Val) -> Val:
        """Magnitude; of a complex value it is real."""
        if is_unsigned(x.dtype) or x.dtype is torch.bool:
            return x
        return self.unary("abs", x, real_of(x.dtype))

    def sign(self, x: Val) -> Val:
        """-1, 0, 1, or NaN; unsigned integers give 0 or 1."""
        if is_unsigned(x.dtype):
            return self.min(x, 1)
        return self.unary("sign", x)

    # Functions of floats (and most of complex)

    def exp(self, x: Val) -> Val:
        """e to the power ``x``."""
        return self.unary("exponential", x)

    def expm1(self, x: Val) -> Val:
        """exp(x) - 1, exact near 0."""
        return self.unary("exponential_minus_one", x)

    def log(self, x: Val) -> Val:
        """Natural logarithm."""
        return self.unary("log", x)

    def log1p(self, x: Val) -> Val:
        """log(1 + x), exact near 0."""
        return self.unary("log_plus_one", x)

    def sqrt(self, x: Val) -> Val:
        """Square root."""
        return self.unary("sqrt", x)

    def rsqrt(self, x: Val) -> Val:
        """1 / sqrt(x)"""
        return self.unary("rsqrt", x)

    def sin(self, x: Val) -> Val:
        """Sine."""
        return self.unary("sine", x)

    def cos(self, x: Val) -> Val:
        """Cosine."""
        return self.unary("cosine", x)

    def tanh(self, x: Val) -> Val:
        """Hyperbolic tangent."""
        return self.unary("tanh", x)

    def logistic(self, x: Val) -> Val:
        """1 / (1 + exp(-x))"""
        return self.unary("logistic", x)

    def floor(self, x: Val) -> Val:
        """Largest integer not above ``x``."""
        return self.unary("floor", x)

    def ceil(self, x: Val) -> Val:
        """Smallest integer not below ``x``."""
        return self.unary("ceil", x)

    def round_even(self, x: Val) -> Val:
        """Nearest integer, halves to the even one."""
        return self.unary("round_nearest_even", x)

    def trunc(self, x: Val) -> Val:
        """Integer part."""
        return self.select(self.lt(x, 0), self.ceil(x), self.floor(x))

    def erf(self, x: Val) -> Val:
        """Error function."""
        return self.chlo("erf", x)

    # Comparison and choice

    def compare(self, direction: str, x: Operand, y: Operand) -> Val:
        """``direction`` is EQ, NE, LT, LE, GT or GE; with a NaN only NE holds."""
        left, right = self.together(x, y)
        if direction not in ("EQ", "NE"):
            _require_order("compare", left)
        if left.dtype is torch.bool or is_unsigned(left.dtype):
            kind = "UNSIGNED"
        else:
            kind = "SIGNED" if is_integer(left.dtype) else "FLOAT"
        attrs = (
            f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
            f"compare_type = #stablehlo<comparison_type {kind}>"
        )
        return self.op1("stablehlo.compare", [left, right], torch.bool, left.shape, attrs)

    def eq(self, x: Operand, y: Operand) -> Val:
        """x == y"""
        return self.compare("EQ", x, y)

    def ne(self, x: Operand, y: Operand) -> Val:
        """x != y"""
        return self.compare("NE", x, y)

    def lt(self, x: Operand, y: Operand) -> Val:
        """x < y"""
        return self.compare("LT", x, y)

    def le(self, x: Operand, y: Operand) -> Val:
        """x <= y"""
        return self.compare("LE", x, y)

    def gt(self, x: Operand, y: Operand) -> Val:
        """x > y"""
        return self.compare("GT", x, y)

    def ge(self, x: Operand, y: Operand) -> Val:
        """x >= y"""
        return self.compare("GE", x, y)

    def isnan(self, x: Val) -> Val:
        """False for all that is no float; complex is NaN if a part is."""
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            return self.full(x.shape, False, torch.bool)
        return self.ne(x, x)

    def isfinite(self, x: Val) -> Val:
        """Neither infinite nor NaN; of complex, both parts."""
        if is_complex(x.dtype):
            return self.and_(self.isfinite(self.real(x)), self.isfinite(self.imag(x)))
        if not x.dtype.is_floating_point:
            return self.full(x.shape, True, torch.bool)
        return self.unary("is_finite", x, torch.bool)

    def select(self, condition: Val, x: Operand, y: Operand) -> Val:
        """``x`` where ``condition`` holds, else ``y``; all three broadcast."""
        left, right = self.together(x, y)
        shape = broadcast_shapes(condition.shape, left.shape)
        operands = [self.broadcast_to(value, shape) for value in (condition, left, right)]
        return self.op1("stablehlo.select", operands, left.dtype, shape)

    def clamp(self, low: Operand, x: Val, high: Operand) -> Val:
        """min(max(x, low), high)"""
        return self.min(self.max(x, low), high)

    # Bits and logic

    def and_(self, x: Operand, y: Operand) -> Val:
        """Bitwise and."""
        return self.binary("and", x, y)

    def or_(self, x: Operand, y: Operand) -> Val:
        """Bitwise or."""
        return self.binary("or", x, y)

    def xor(self, x: Operand, y: Operand) -> Val:
        """Bitwise exclusive or."""
        return self.binary("xor", x, y)

    def not_(self, x: Val) -> Val:
        """Bitwise not."""
        return self.unary("not", x)

    def all_of(self, *conditions: Val) -> Val:
        """And of all conditions."""
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.and_(result, condition)
        return result

    def shift_left(self, x: Operand, y: Operand) -> Val:
        """``x << y``, 0 if ``y`` is negative or too large."""
        return self.binary("shift_left", x, y)

    def shift_right(self, x: Operand, y: Operand) -> Val:
        """Arithmetic for signed integers, logical for unsigned ones."""
        values = self.together(x, y)
        kind = "logical" if is_unsigned(values[0].dtype) else "arithmetic"
        return self.binary(f"shift_right_{kind}", *values)

    # Complex numbers

    def complex(self, real: Val, imag: Val) -> Val:
        """real + i imag"""
        real, imag = self.together(real, imag)
        return self.op1("stablehlo.complex", [real, imag], complex_of(real.dtype), real.shape)

    def real(self, x: Val) -> Val:
        """Real part; a real value is its own."""
        return self.unary("real", x, real_of(x.dtype)) if is_complex(x.dtype) else x

    def imag(self, x: Val) -> Val:
        """Imaginary part, 0 of a real value."""
        return (
            self.unary("imag", x, real_of(x.dtype))
            if is_complex(x.dtype)
            else self.full(x.shape, 0, x.dtype)
        )

    def conj(self, x: Val) -> Val:
        """Complex conjugate."""
        return self.complex(self.real(x), self.neg(self.imag(x))) if is_complex(x.dtype) else x

    # Type promotion

    def result_type(self, *operands: Operand) -> torch.dtype:
        """PyTorch's common dtype of tensors, 0-d tensors and numbers."""
        by_rank: list[torch.dtype | None] = [None, None, None]
        for operand in operands:
            dtype, rank = _dtype_and_rank(operand)
            known = by_rank[rank]
            by_rank[rank] = dtype if known is None else torch.promote_types(known, dtype)
        result = _combine(by_rank[2], _combine(by_rank[1], by_rank[0]))
        if result is None:
            raise ValueError("result_type of no operands")
        return result


def _dtype_and_rank(operand: Operand) -> tuple[torch.dtype, int]:
    """Rank 2 for dimensioned tensors, 1 for 0-d ones, 0 for numbers, which come in their category's
    default dtype.
    """
    if isinstance(operand, Val) and not operand.wrapped:
        return operand.dtype, 2 if operand.shape else 1
    if isinstance(operand, Val):
        dtype = operand.dtype
    elif isinstance(operand, bool):
        dtype = torch.bool
    elif isinstance(operand, int):
        dtype = torch.int64
    else:
        dtype = torch.float64 if isinstance(operand, float) else torch.complex128
    if dtype.is_floating_point:
        return torch.get_default_dtype(), 0
    return torch.get_default_dtype().to_complex() if dtype.is_complex else dtype, 0


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """A lower rank counts only if its category (bool, integer, float, complex) is higher."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher
