"""Ops that are several programs: plain functions over device tensors, called on every use."""

from collections.abc import Callable
from typing import Any

import torch

from torchneuron._C import TensorArgument
from torchneuron._untraced import untraced
from torchneuron.eager.calls import Call

Composite = Callable[..., Any]
_table: dict[str, tuple[Callable[[Call], bool], Composite]] = {}


def composite(
    *names: str, when: Callable[[Call], bool] = lambda call: True
) -> Callable[[Composite], Composite]:
    """Register a function as what the ops ``names`` do for calls for which ``when`` holds."""

    def register(function: Composite) -> Composite:
        for name in names:
            if name in _table:
                raise ValueError(f"{name} has a composite already")
            _table[name] = (when, untraced(function))
        return function

    return register


def find(call: Call) -> Composite | None:
    """The composite of a call, if it has one."""
    entry = _table.get(str(call.op))
    return entry[1] if entry is not None and entry[0](call) else None


def names() -> frozenset[str]:
    """The ops that have a composite, for some of their calls at least."""
    return frozenset(_table)


def mutates_in_secret(call: Call) -> bool:
    """``native_batch_norm`` updates running statistics in training, without its schema saying so."""
    return bool(call.args[5]) and isinstance(call.args[3], TensorArgument)


def _has_mask(call: Call) -> bool:
    """An index that is a mask selects a number of elements that depends on data."""
    masks = (torch.bool, torch.uint8)
    return any(
        isinstance(i, TensorArgument) and call.tensors[i.index].dtype in masks for i in call.args[1]
    )


def _without_masks(
    x: torch.Tensor, indices: list[torch.Tensor | None]
) -> list[torch.Tensor | None]:
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
        raise RuntimeError(
            f"Expected object of data type {x.dtype} but got data type {other.dtype} for argument"
        )
    return x.shape == other.shape and bool(torch.eq(x, other).all().item())


def _no_output_size(call: Call) -> bool:
    return call.args[1] is None


@composite("aten.repeat_interleave.Tensor", when=_no_output_size)
def repeat_interleave(repeats: torch.Tensor, output_size: int | None = None) -> torch.Tensor:
    if repeats.dim() != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype not in (torch.int32, torch.int64):
        raise RuntimeError("repeats has to be Long or Int tensor")
    if repeats.numel() == 0:
        return torch.empty_like(repeats)
    total, smallest = torch.stack([repeats.sum(), repeats.amin().to(torch.int64)]).tolist()
    if smallest < 0:
        raise RuntimeError("repeats can not be negative")
    result: torch.Tensor = torch.ops.aten.repeat_interleave.Tensor(repeats, output_size=total)
    return result


def _no_total(call: Call) -> bool:
    return call.args[2] is None


@composite("aten._padded_dense_to_jagged_forward.default", when=_no_total)
def jagged_from_padded(
    padded: torch.Tensor, offsets: list[torch.Tensor], total: int | None = None
) -> torch.Tensor:
    total = int(offsets[0][-1])
    result: torch.Tensor = torch.ops.aten._padded_dense_to_jagged_forward(padded, offsets, total)
    return result


@composite("aten.bincount.default")
def bincount(
    x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    if x.dim() != 1 or x.is_floating_point() or x.is_complex() or x.dtype is torch.bool:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and weights.shape != x.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.dtype is torch.float32 else torch.float64
    size = minlength
    if x.numel():
        low, high = torch.stack(torch.aminmax(x)).tolist()
        if low < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        size = max(size, high + 1)
    counts = torch.zeros(size, dtype=dtype, device=x.device)
    ones = torch.ones_like(x, dtype=dtype) if weights is None else weights.to(dtype)
    return counts.scatter_add_(0, x.to(torch.int64), ones) if x.numel() else counts


# Along dimension 0 the result is bounded by the shapes; along another it is moved there first.
def _other_dimension(call: Call) -> bool:
    dim = call.args[3] if str(call.op) == "aten.unique_consecutive.default" else call.args[1]
    return dim is not None and dim % max(1, len(call.tensors[0].sizes)) != 0


@composite("aten.unique_dim.default", "aten.unique_dim_consecutive.default", when=_other_dimension)
def unique_dim(x: torch.Tensor, dim: int, *flags: bool) -> tuple[torch.Tensor, ...]:
    op = torch.ops.aten.unique_dim if len(flags) == 3 else torch.ops.aten.unique_dim_consecutive
    values, inverse, counts = op(x.movedim(dim, 0).contiguous(), 0, *flags)
    return values.movedim(0, dim), inverse, counts


@composite("aten.unique_consecutive.default", when=_other_dimension)
def unique_consecutive(
    x: torch.Tensor, return_inverse: bool, return_counts: bool, dim: int
) -> tuple[torch.Tensor, ...]:
    result: tuple[torch.Tensor, ...] = unique_dim(x, dim, return_inverse, return_counts)
    return result


@composite("aten.cholesky.default")
def cholesky(x: torch.Tensor, upper: bool = False) -> torch.Tensor:
    factor: torch.Tensor
    factor, info = torch.ops.aten.linalg_cholesky_ex(x, upper=upper)
    torch.ops.aten._linalg_check_errors(info, "cholesky", is_matrix=x.dim() == 2)
    return factor


@composite("aten._assert_async.default", "aten._assert_async.msg")
def assert_async(
    x: torch.Tensor, message: str = "Expected Tensor with single nonzero value, but got zero"
) -> tuple[()]:
    """The error comes at once: only what reads the value can raise it."""
    if not bool(x):
        raise RuntimeError(message)
    return ()


@composite("aten._functional_assert_async.msg")
def functional_assert_async(x: torch.Tensor, message: str, dep_token: torch.Tensor) -> torch.Tensor:
    assert_async(x, message)
    return dep_token.clone()
