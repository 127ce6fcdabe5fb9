"""Ops that belong to no family."""

from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import bits_dtype, is_float, opmath
from torchneuron.lowering.emitting import shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter

# Tables that depend on sizes and static numbers alone

_TABLES = (
    *(
        f"{name}_window.{kind}"
        for name in ("bartlett", "blackman", "hann")
        for kind in ("default", "periodic")
    ),
    *("hamming_window.default", "hamming_window.periodic"),
    *("hamming_window.periodic_alpha", "hamming_window.periodic_alpha_beta"),
    *("kaiser_window.default", "kaiser_window.periodic", "kaiser_window.beta"),
    *("fft_fftfreq.default", "fft_rfftfreq.default"),
)


def _register_table(name: str) -> None:
    @emitter(f"aten.{name}", static=("alpha", "beta", "d"))
    def table(b: Builder, out: Any, *args: Any, **kwargs: Any) -> Val:
        base, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, base), overload)
        return b.constant(op(*args, **kwargs | {"dtype": out.dtype, "device": "cpu"}))


for _name in _TABLES:
    _register_table(_name)


# Bits


@emitter("aten.frexp.Tensor")
def frexp(b: Builder, out: Any, x: Val) -> tuple[Val, Val]:
    dtype = opmath(x.dtype)
    value = b.convert(x, dtype)
    fraction_bits, bias = (23, 127) if dtype is torch.float32 else (52, 1023)
    sign_bit = 1 << (8 * dtype.itemsize - 1)
    bits = b.bitcast_convert(value, bits_dtype(dtype))
    size, sign = b.and_(bits, sign_bit - 1), b.and_(bits, sign_bit)
    # The bits of a subnormal number count units of its last place. As an integer, because arithmetic may flush it.
    small = b.lt(size, 1 << fraction_bits)
    size = b.select(small, b.bitcast_convert(b.convert(size, dtype), size.dtype), size)
    unit = b.select(small, bias + fraction_bits - 1, b.full(size.shape, 0, torch.int32))
    field = b.convert(b.shift_right(size, fraction_bits), torch.int32)
    exponent = b.sub(b.sub(field, bias - 1), unit)
    fraction = b.and_(size, (1 << fraction_bits) - 1)
    mantissa = b.or_(b.or_(fraction, (bias - 1) << fraction_bits), sign)
    special = b.or_(b.eq(size, 0), b.not_(b.isfinite(value)))
    return (
        b.convert(b.select(special, value, b.bitcast_convert(mantissa, dtype)), x.dtype),
        b.select(special, 0, exponent),
    )


@emitter("aten.hash_tensor")
def hash_tensor(
    b: Builder,
    out: Any,
    x: Val,
    dim: Sequence[int] | int = (),
    *,
    keepdim: bool = False,
    mode: int = 0,
) -> Val:
    """Exclusive or of the elements' bits, floats as float64, integers as int64."""
    if mode != 0:
        raise LoweringError("aten.hash_tensor", f"mode {mode} is unknown")
    wide = b.convert(x, torch.float64 if is_float(x.dtype) else torch.int64)
    bits = b.bitcast_convert(wide, torch.uint64)
    dims = [dim] if isinstance(dim, int) else list(dim)
    axes = sorted(axis % x.ndim for axis in dims) if dims and x.ndim else list(range(x.ndim))
    if not axes:
        return bits
    return b.reshape(b.reduce([bits], [0], axes, b.xor)[0], shape_of(out))


@emitter("aten._assert_tensor_metadata")
def assert_tensor_metadata(b: Builder, out: Any, *_: Any, **__: Any) -> None:
    """Nothing: shape inference has called the op, which raises where the metadata differ."""
    return None
