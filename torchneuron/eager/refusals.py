"""Dtypes that PyTorch's CPU kernels refuse: here they raise the same, though the device could compute them.

``refusals.json`` holds what the CPU was seen to refuse; ``make refusals`` writes it anew. A call is looked up by its
functional form and by all that has a dtype in its arguments: tensors, numbers, dtypes; and by its strings, which choose
among kernels (a rounding mode, a reduction). What is not in the table runs: what CUDA is known to compute, since code
chooses by "is it a CPU?", and all in float16 or bfloat16.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload

from torchneuron._C import ScalarDescription, TensorDescription
from torchneuron.eager.calls import Call, short
from torchneuron.eager.functional import functional_form

TABLE = Path(__file__).with_suffix(".json")
# As PyTorch's C++ names them in messages.
CXX_NAMES = {
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}
ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (NotImplementedError, RuntimeError, IndexError, TypeError)
}
_HAVE_DTYPES = ("Tensor", "number", "ScalarType", "str")


def check_dtypes(call: Call) -> None:
    """Raise what PyTorch's CPU raises if it refuses the dtypes of ``call``."""
    described = call.substitute(call.tensors.__getitem__, call.scalars.__getitem__)
    op, values = functional(call.op, described)
    # Many kernels look at the dtype only once there is something to compute.
    if any(0 in tensor.sizes for tensor in _tensors(values)):
        return
    found = refusal(op, key(op, values))
    if found is not None:
        raise found


def _tensors(values: Sequence[Any]) -> Iterator[TensorDescription]:
    for value in values:
        if isinstance(value, list):
            yield from _tensors(value)
        elif isinstance(value, TensorDescription):
            yield value


def functional(op: OpOverload, values: Sequence[Any]) -> tuple[OpOverload, list[Any]]:
    """The call as one of its functional form: in-place and ``out=`` forms share the kernel."""
    form = functional_form(op)
    if form is None:
        return op, list(values)
    names = [argument.name for argument in form.op._schema.arguments]
    # What `out=` decides of a factory is its dtype.
    out = values[form.targets[0]] if None in form.args else None
    return form.op, [
        (getattr(out, "dtype", None) if name == "dtype" else None)
        if position is None
        else values[position]
        for name, position in zip(names, form.args, strict=True)
    ]


def key(op: OpOverload, values: Sequence[Any]) -> str:
    """What of a functional call decides whether its dtypes are refused: ``"int64(:) float -"``."""
    tokens = (_token(*item) for item in zip(_types(op), values, strict=True))
    return " ".join(token for token in tokens if token)


@cache
def _types(op: OpOverload) -> tuple[str, ...]:
    """The types of the arguments that have a dtype, and empty ones for the others."""
    types = (str(argument.real_type) for argument in op._schema.arguments)
    return tuple(text if any(part in text for part in _HAVE_DTYPES) else "" for text in types)


def _token(expected: str, value: Any) -> str:
    """One argument in a key; a tensor ends in "()" if it has no dimensions, and else in "(:)"."""
    if not expected:
        return ""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, torch.dtype):
        return short(value)
    if isinstance(value, torch.Tensor):
        return short(value.dtype) + ("(:)" if value.dim() else "()")
    if isinstance(value, TensorDescription):
        return short(value.dtype) + ("(:)" if value.sizes else "()")
    if isinstance(value, ScalarDescription):
        return _number_token(value)
    if isinstance(value, list | tuple):
        tokens = dict.fromkeys(_token("Tensor", item) for item in value)
        return f"[{','.join(tokens)}]" if "Tensor" in expected else ""
    return type(value).__name__


def _number_token(scalar: ScalarDescription) -> str:
    """A number is called what Python calls it, also where it arrives as a tensor."""
    example = scalar.example
    if isinstance(example, torch.Tensor):
        return type(example.item()).__name__ if scalar.wrapped else f"{short(scalar.dtype)}()"
    return type(example).__name__


def refusal(op: OpOverload, found: str) -> Exception | None:
    """The error that the CPU raises for calls of the functional ``op`` with this key."""
    refused = _refusals(str(op))
    entry = refused.get(any_dimensions(found)) or refused.get(found)
    return ERRORS[entry[0]](entry[1]) if entry is not None else None


def any_dimensions(key_or_pattern: str) -> str:
    """The key, or pattern of keys, that stands for tensors with dimensions and without."""
    return key_or_pattern.replace("(:)", "").replace("()", "")


@cache
def _refusals(op: str) -> dict[str, tuple[str, str]]:
    """Key -> error and message."""
    result = {}
    for error, message, pattern, dtypes in _table().get(op, ()):
        for dtype in map(_DTYPES.__getitem__, dtypes.split()):
            result[expand(pattern, dtype)] = error, message.replace("{T}", CXX_NAMES[dtype])
    return result


@cache
def _table() -> dict[str, list[list[str]]]:
    table: dict[str, list[list[str]]] = json.loads(TABLE.read_text())
    return table


_DTYPES = {short(dtype): dtype for dtype in CXX_NAMES}


def number_kind(dtype: torch.dtype) -> type:
    """The type of Python's numbers that are of the kind of ``dtype``."""
    if dtype.is_complex:
        return complex
    return bool if dtype is torch.bool else float if dtype.is_floating_point else int


def expand(pattern: str, dtype: torch.dtype) -> str:
    """The key that ``pattern`` stands for: its T are ``dtype``, its N numbers of that kind."""
    names = {"T": short(dtype), "N": number_kind(dtype).__name__}
    return re.sub(r"\b[TN]\b", lambda match: names[match[0]], pattern)
