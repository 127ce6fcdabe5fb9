"""Checks that PyTorch's kernels make and its meta functions leave out: wrong arguments raise the same errors."""

from collections.abc import Iterator
from typing import Any

import torch

from torchneuron._C import TensorArgument, TensorDescription
from torchneuron.eager.calls import Call
from torchneuron.eager.op_checks import check_op
from torchneuron.eager.refusals import check_dtypes

_INDEX_DTYPES = (torch.int64, torch.int32, torch.uint8, torch.bool)
# Ops of which `dim` counts the dimensions of the result.
_RESULT_DIM = ("aten::stack", "aten::unsqueeze_copy", "aten::unsqueeze")
_SIZES = ("input_sizes", "self_sizes")
# Products whose operands must agree in dtype.
_SAME_DTYPE = tuple(
    f"aten::{op}" for op in ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "vdot")
)


def check(call: Call) -> None:
    """Raise where PyTorch's CPU would, and what it would."""
    name = call.op._schema.name
    _check_dims(call, name)
    _check_overlap(call)
    if name in ("aten::index", "aten::index_put", "aten::_index_put_impl_", "aten::index_put_"):
        _check_indices(call)
    if name == "aten::random_":
        _check_random_range(call)
    if name in _SAME_DTYPE:
        _check_same_dtype(call, name)
    check_op(call)
    check_dtypes(call)


def _tensors(call: Call) -> Iterator[TensorDescription]:
    return (call.tensors[arg.index] for arg in call.args if isinstance(arg, TensorArgument))


def _dims(value: Any) -> list[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []


def _check_dims(call: Call, name: str) -> None:
    arguments = call.op._schema.arguments
    # A list has its own checks, and the first tensor by itself would be an `out=`.
    first = None if isinstance(call.args[0], list) else next(_tensors(call), None)
    if first is None or name in _RESULT_DIM:
        return
    names = [argument.name for argument in arguments]
    # A gradient's `dim` counts the dimensions of what it is the gradient of.
    sizes = next((call.args[names.index(n)] for n in _SIZES if n in names), first.sizes)
    limit = max(len(sizes), 1)
    for argument, value in zip(arguments, call.args, strict=True):
        if argument.name not in ("dim", "dims"):
            continue
        for dim in _dims(value):
            if not -limit <= dim < limit:
                raise IndexError(
                    f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})"
                )


def _check_overlap(call: Call) -> None:
    """PyTorch refuses to write through a view in which elements share memory."""
    for tensor in call.tensors:
        if (
            tensor.written
            and 0 not in tensor.sizes
            and any(
                stride == 0 and size > 1
                for size, stride in zip(tensor.sizes, tensor.strides, strict=True)
            )
        ):
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation."
            )


def _check_indices(call: Call) -> None:
    for item in call.args[1]:
        if isinstance(item, TensorArgument) and call.tensors[item.index].dtype not in _INDEX_DTYPES:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")


def _check_random_range(call: Call) -> None:
    bounds = {
        argument.name: value
        for argument, value in zip(call.op._schema.arguments, call.args, strict=True)
        if argument.name in ("from", "to") and isinstance(value, int)
    }
    start, end = bounds.get("from", 0), bounds.get("to")
    if end is not None and start >= end:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={start} >= to={end}"
        )


def _check_same_dtype(call: Call, name: str) -> None:
    dtypes = {tensor.dtype for tensor in _tensors(call) if not tensor.written}
    if len(dtypes) > 1:
        listed = " and ".join(sorted(str(dtype) for dtype in dtypes))
        raise RuntimeError(
            f"{name.removeprefix('aten::')}: expected operands of the same dtype, but got {listed}"
        )
