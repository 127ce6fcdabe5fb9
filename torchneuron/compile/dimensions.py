"""Sizes of an exported program that are expressions of symbols: what the arguments make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from torchneuron.compile.exported import ExportError

Bound = Mapping[str, int]


class Dimensions:
    """Checks a call's arguments against the inputs of an exported program."""

    def __init__(
        self, symbols: Mapping[str, Sequence[int | None]], inputs: Sequence[Mapping[str, Any]]
    ) -> None:
        """``symbols`` and ``inputs`` are those of ``exported.Signature``."""
        self._symbols = symbols
        self._inputs = inputs

    def bind(self, leaves: Sequence[Any]) -> Bound:
        """The value of each symbol. Raises ExportError, naming the input, for a leaf that does not
        fit: another kind, dtype, number of dimensions, size, or value.
        """
        bound: dict[str, int] = {}
        for item, leaf in zip(self._inputs, leaves, strict=True):
            _check_kind(item, leaf)
            for size, actual in _sizes(item, leaf):
                if isinstance(size, str) and size in self._symbols:
                    self._bind(size, actual, item, bound)
        for item, leaf in zip(self._inputs, leaves, strict=True):
            for place, (size, actual) in enumerate(_sizes(item, leaf)):
                expected = _evaluate(size, bound)
                if expected != actual:
                    raise ExportError(
                        f"input {item['name']}: {_where(item, place)} is {actual}, the program "
                        f"takes {expected}" + (f" ({size})" if isinstance(size, str) else "")
                    )
        return bound

    def layout(self, item: Mapping[str, Any], bound: Bound) -> tuple[list[int], list[int]]:
        """Sizes and strides of an input that is a tensor."""
        sizes = [_evaluate(size, bound) for size in item["sizes"]]
        return sizes, [_evaluate(stride, bound) for stride in item["strides"]]

    def _bind(
        self, symbol: str, value: int, item: Mapping[str, Any], bound: dict[str, int]
    ) -> None:
        known = bound.setdefault(symbol, value)
        if known != value:
            raise ExportError(
                f"input {item['name']}: {symbol} is {value} here and {known} in an input before"
            )
        low, high = self._symbols[symbol]
        if (low is not None and value < low) or (high is not None and value > high):
            limits = f"at least {low}" if high is None else f"from {low} to {high}"
            raise ExportError(f"input {item['name']}: {symbol} is {value}; it must be {limits}")


def _check_kind(item: Mapping[str, Any], leaf: Any) -> None:
    name = item["name"]
    if item["kind"] == "constant":
        if type(leaf) is not type(item["value"]) or leaf != item["value"]:
            raise ExportError(
                f"input {name}: the program was made for {item['value']!r} and takes no {leaf!r}"
            )
    elif item["kind"] == "integer":
        if not isinstance(leaf, int) or isinstance(leaf, bool):
            raise ExportError(f"input {name}: an integer is wanted, not a {type(leaf).__name__}")
    elif not isinstance(leaf, torch.Tensor):
        raise ExportError(f"input {name}: a tensor is wanted, not a {type(leaf).__name__}")
    elif str(leaf.dtype) != f"torch.{item['dtype']}":
        raise ExportError(f"input {name}: the program takes {item['dtype']}, not {leaf.dtype}")
    elif leaf.dim() != len(item["sizes"]):
        raise ExportError(
            f"input {name}: the program takes {len(item['sizes'])} dimensions, not {leaf.dim()}"
        )


def _sizes(item: Mapping[str, Any], leaf: Any) -> list[tuple[int | str, int]]:
    if item["kind"] == "tensor":
        return list(zip(item["sizes"], leaf.shape, strict=True))
    return [(item["value"], leaf)] if item["kind"] == "integer" else []


def _where(item: Mapping[str, Any], place: int) -> str:
    return f"dimension {place}" if item["kind"] == "tensor" else "its value"


def _evaluate(size: int | str, bound: Bound) -> int:
    if isinstance(size, int):
        return size
    if size in bound:
        return bound[size]
    return _value(size, tuple(sorted(bound.items())))


@cache
def _value(text: str, bound: tuple[tuple[str, int], ...]) -> int:
    import sympy
    from torch.utils._sympy import functions

    names = {name: getattr(functions, name) for name in functions.__all__}
    names |= {symbol: sympy.Integer(value) for symbol, value in bound}
    return int(sympy.sympify(text, locals=names))
