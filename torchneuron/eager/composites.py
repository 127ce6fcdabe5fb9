"""Ops that are several programs: plain functions over device tensors, called on every use."""

from collections.abc import Callable
from typing import Any

import torch

from torchneuron._C import TensorArgument
from torchneuron.eager.calls import Call

Composite = Callable[..., Any]
_table: dict[str, tuple[Callable[[Call], bool], Composite]] = {}


def composite(*names: str, when: Callable[[Call], bool] = lambda call: True) -> Callable[[Composite], Composite]:
    """Register a function as what the ops ``names`` do for calls for which ``when`` holds."""

    def register(function: Composite) -> Composite:
        for name in names:
            if name in _table:
                raise ValueError(f"{name} has a composite already")
            _table[name] = (when, function)
        return function

    return register


def find(call: Call) -> Composite | None:
    """The composite of a call, if it has one."""
    entry = _table.get(str(call.op))
    return entry[1] if entry is not None and entry[0](call) else None


def mutates_in_secret(call: Call) -> bool:
    """``native_batch_norm`` updates running statistics in training, without its schema saying so."""
    return bool(call.args[5]) and isinstance(call.args[3], TensorArgument)


def _has_mask(call: Call) -> bool:
    """An index that is a mask selects a number of elements that depends on data."""
    masks = (torch.bool, torch.uint8)
    return any(isinstance(i, TensorArgument) and call.tensors[i.index].dtype in masks for i in call.args[1])


def _without_masks(x: torch.Tensor, indices: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The indices with every mask replaced by the positions at which it is true."""
    result: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            result.append(index)
            continue
        covered = x.shape[len(result) : len(result) + index.dim()]
        if tuple(covered) != tuple(index.shape):
            raise IndexError(
                f"The shape of the mask {list(index.shape)} at index 0 does not match the shape of the indexed tensor "
                f"{list(x.shape)} at index 0"
            )
        result.extend(index.nonzero().unbind(1))
    return result


@composite("aten.index.Tensor", when=_has_mask)
def index(x: torch.Tensor, indices: list[torch.Tensor | None]) -> torch.Tensor:
    result: torch.Tensor = torch.ops.aten.index.Tensor(x, _without_masks(x, indices))
    return result


@composite("aten._index_put_impl_.default", when=_has_mask)
def index_put(
    x: torch.Tensor,
    indices: list[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    torch.ops.aten._index_put_impl_(x, _without_masks(x, indices), values, accumulate, unsafe)
    return x


@composite("aten.equal.default")
def equal(x: torch.Tensor, other: torch.Tensor) -> bool:
    if x.dtype != other.dtype:
        raise RuntimeError(f"Expected object of data type {x.dtype} but got data type {other.dtype} for argument")
    return x.shape == other.shape and bool(torch.eq(x, other).all().item())
