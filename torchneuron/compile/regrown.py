"""Tensors with more rows than they have, and with fewer.

Where the device's memory is the host's, both copy there: a program would be one for each size, and
take longer to compile than a size is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from torchneuron import _C
from torchneuron.compile.proving import Layout

Sizes = Mapping[Any, sympy.Integer]


def evaluate(number: Any, sizes: Sizes) -> Any:
    """A number made of sizes, or a comparison of them."""
    found = number.xreplace(sizes)
    if found.is_Boolean:
        return bool(found)
    return int(found) if number.is_integer else float(found)


def grown(tensor: torch.Tensor, layout: Layout, symbol: Any, sizes: Sizes, to: int) -> torch.Tensor:
    """The tensor with zeros after the rows of ``symbol``, near the host; ``sizes`` are those it has."""
    apart = _apart(_near(tensor), layout, sizes)
    wanted = {**sizes, symbol: sympy.Integer(to)}
    full = apart.new_zeros([evaluate(factor, wanted) for dim in layout for factor in dim])
    _rows(full, layout, symbol, evaluate(symbol, sizes)).copy_(apart)
    return full.reshape(_joined(layout, wanted))


def cut(
    tensor: torch.Tensor,
    layout: Layout,
    symbol: Any,
    sizes: Sizes,
    to: int,
) -> torch.Tensor:
    """The first ``to`` rows of ``symbol``, near the host; ``sizes`` are those that the tensor has."""
    rows = _near(_rows(_apart(tensor, layout, sizes), layout, symbol, to))
    return rows.reshape(_joined(layout, {**sizes, symbol: sympy.Integer(to)}))


def placed(tensor: torch.Tensor, strides: Sequence[int], device: torch.device) -> torch.Tensor:
    """The tensor on a device, with these strides."""
    if tensor.device == device and list(tensor.stride()) == list(strides):
        return tensor
    result = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=device)
    return result.copy_(tensor)


def _near(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu() if _C.client().platform_name == "cpu" else tensor


def _apart(tensor: torch.Tensor, layout: Layout, sizes: Sizes) -> torch.Tensor:
    return tensor.reshape([evaluate(factor, sizes) for dim in layout for factor in dim])


def _rows(apart: torch.Tensor, layout: Layout, symbol: Any, count: int) -> torch.Tensor:
    for place, factor in enumerate(factor for dim in layout for factor in dim):
        if factor == symbol:
            apart = apart.narrow(place, 0, count)
    return apart


def _joined(layout: Layout, sizes: Sizes) -> list[int]:
    return [math.prod(evaluate(factor, sizes) for factor in dim) for dim in layout]
