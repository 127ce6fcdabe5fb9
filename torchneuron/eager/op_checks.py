"""Checks of single operators that PyTorch's CPU kernels make and its meta functions leave out or make otherwise.

Each takes the call and its arguments by name; a tensor is a ``TensorDescription``. They see what is part of the
signature: shapes, dtypes, shared storages, integers. Numbers that are operands are checked in csrc/eager/precheck.cpp.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchneuron._C import TensorArgument
from torchneuron.eager.calls import Call

Arguments = Mapping[str, Any]
_Check = Callable[[Arguments], None]
_table: dict[str, _Check] = {}
_MOST_CATEGORIES = 1 << 24
_COMPLEX = {torch.float16: torch.complex32, torch.float32: torch.complex64}


def check_op(call: Call) -> None:
    """Raise what PyTorch's kernel would, if the op has a check."""
    found = _table.get(call.op._schema.name)
    if found is None:
        return

    def described(value: Any) -> Any:
        if isinstance(value, list):
            return [described(item) for item in value]
        return call.tensors[value.index] if isinstance(value, TensorArgument) else value

    names = (argument.name for argument in call.op._schema.arguments)
    found({name: described(value) for name, value in zip(names, call.args, strict=True)})


def _check(*names: str) -> Callable[[_Check], _Check]:
    def register(function: _Check) -> _Check:
        _table.update(dict.fromkeys(names, function))
        return function

    return register


@_check("aten::range", "aten::linspace", "aten::logspace")
def _numbers(arguments: Arguments) -> None:
    out = arguments.get("out")
    if torch.bool in (arguments.get("dtype"), getattr(out, "dtype", None)):
        raise NotImplementedError("a range or space of numbers is not implemented for 'Bool'")


@_check("aten::amax", "aten::amin", "aten::aminmax")
def _reduces_something(arguments: Arguments) -> None:
    sizes = arguments["self"].sizes
    dims = arguments["dim"]
    for dim in dims if isinstance(dims, list) else [dims]:
        if sizes and dim is not None and sizes[dim] == 0:
            raise IndexError(f"Expected reduction dim {dim} to have non-zero size.")
    for name in ("min", "max"):
        out = arguments.get(name)
        if out is not None and out.dtype != arguments["self"].dtype:
            raise RuntimeError(
                f"Expected out tensor to have dtype {arguments['self'].dtype}, but got {out.dtype} instead"
            )


@_check("aten::bucketize")
def _boundaries(arguments: Arguments) -> None:
    dims = len(arguments["boundaries"].sizes)
    if dims != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({dims})")


@_check("aten::cat")
def _no_scalars(arguments: Arguments) -> None:
    for position, tensor in enumerate(arguments["tensors"]):
        if not tensor.sizes:
            raise RuntimeError(
                f"zero-dimensional tensor (at position {position}) cannot be concatenated"
            )


@_check("aten::complex")
def _complex_of(arguments: Arguments) -> None:
    out, real = arguments.get("out"), arguments["real"].dtype
    wanted = _COMPLEX.get(real, torch.complex128)
    if out is not None and out.dtype != wanted:
        raise RuntimeError(
            f"Expected object of scalar type {wanted} but got scalar type {out.dtype} for argument 'out'"
        )


@_check("aten::convolution", "aten::convolution_overrideable")
def _padding(arguments: Arguments) -> None:
    if any(padding < 0 for padding in arguments["padding"]):
        raise RuntimeError("negative padding is not supported")


@_check("aten::embedding")
def _weight(arguments: Arguments) -> None:
    if len(arguments["weight"].sizes) != 2:
        raise RuntimeError("'weight' must be 2-D")


@_check("aten::_histogramdd_bin_edges", "aten::_histogramdd_from_bin_cts")
def _bins(arguments: Arguments) -> None:
    if len(arguments["bins"]) != arguments["self"].sizes[-1]:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input."
        )


@_check("aten::masked_scatter", "aten::masked_scatter_")
def _boolean_mask(arguments: Arguments) -> None:
    if arguments["mask"].dtype != torch.bool:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {arguments['mask'].dtype}"
        )


@_check("aten::masked_select", "aten::take")
def _out_apart(arguments: Arguments) -> None:
    out = arguments.get("out")
    inputs = (arguments[name] for name in ("self", "mask", "index") if name in arguments)
    if out is not None and any(tensor.storage == out.storage for tensor in inputs):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )


@_check("aten::multinomial")
def _samples(arguments: Arguments) -> None:
    out, sizes = arguments.get("out"), arguments["self"].sizes
    if out is not None and out.dtype != torch.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {out.dtype}")
    if isinstance(arguments["num_samples"], int) and arguments["num_samples"] <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if sizes and sizes[-1] > _MOST_CATEGORIES:
        raise RuntimeError("number of categories cannot exceed 2^24")
