"""torch dtypes in StableHLO's terms."""

import torch

from torchneuron.lowering.errors import LoweringError

_MLIR_NAMES: dict[torch.dtype, str] = {
    torch.bool: "i1",
    torch.uint8: "ui8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint16: "ui16",
    torch.uint32: "ui32",
    torch.uint64: "ui64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ",
    torch.float8_e5m2fnuz: "f8E5M2FNUZ",
    torch.float8_e8m0fnu: "f8E8M0FNU",
}

_BY_TEXT = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_UNSIGNED = frozenset({torch.uint8, torch.uint16, torch.uint32, torch.uint64})
_NARROW_FLOATS = frozenset({torch.float16, torch.bfloat16}) | {
    dtype for dtype in _MLIR_NAMES if dtype.is_floating_point and dtype.itemsize == 1
}
_UNSIGNED_OF_SIZE = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


def mlir_name(dtype: torch.dtype) -> str:
    """The element type's name in StableHLO; LoweringError for a dtype that it lacks."""
    try:
        return _MLIR_NAMES[dtype]
    except KeyError:
        raise LoweringError(dtype, "StableHLO has no such element type") from None


def from_text(text: str) -> torch.dtype:
    """The dtype that ``str`` writes so, as programs' metadata do; KeyError if there is none.

    >>> from_text("torch.float32")
    torch.float32
    """
    return _BY_TEXT[text]


def is_supported(dtype: torch.dtype) -> bool:
    """Whether StableHLO has the element type."""
    return dtype in _MLIR_NAMES


def is_float(dtype: torch.dtype) -> bool:
    """True for real floats, the 8-bit ones too."""
    return dtype.is_floating_point


def is_complex(dtype: torch.dtype) -> bool:
    """True for complex dtypes."""
    return dtype.is_complex


def is_integer(dtype: torch.dtype) -> bool:
    """True for signed and unsigned integers, not for bool."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def is_unsigned(dtype: torch.dtype) -> bool:
    """True for unsigned integers."""
    return dtype in _UNSIGNED


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype PyTorch computes in for tensors of ``dtype``: float32 for the narrow floats, else
    the same.
    """
    return torch.float32 if dtype in _NARROW_FLOATS else dtype


def real_of(dtype: torch.dtype) -> torch.dtype:
    """The component dtype of a complex dtype, else the dtype itself."""
    return dtype.to_real() if dtype.is_complex else dtype


def complex_of(dtype: torch.dtype) -> torch.dtype:
    """The complex dtype with components of ``dtype``."""
    return dtype.to_complex()


def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """The unsigned integer as wide as ``dtype`` (not for complex)."""
    return _UNSIGNED_OF_SIZE[dtype.itemsize]


def lowest(dtype: torch.dtype) -> bool | int | float:
    """Identity of max: -inf, the smallest integer, or False."""
    if dtype.is_floating_point:
        return float("-inf")
    return False if dtype is torch.bool else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> bool | int | float:
    """Identity of min: inf, the largest integer, or True."""
    if dtype.is_floating_point:
        return float("inf")
    return True if dtype is torch.bool else torch.iinfo(dtype).max
