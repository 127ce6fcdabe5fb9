"""Ops on lists of tensors: each tensor takes its op's own emitter."""

from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter, find_emitter

Arg = Val | Number


def _emitter_of(name: str, overload: str) -> Any:
    op = getattr(getattr(torch.ops.aten, name), overload)
    found = find_emitter(op)
    if found is None:
        raise LoweringError(op, "no emitter for the tensors of a list")
    return found.function


def _register_unary(name: str) -> None:
    @emitter(f"aten._foreach_{name}")
    def unary(b: Builder, out: Any, tensors: Sequence[Val]) -> list[Val]:
        one = _emitter_of(name, "default")
        return [one(b, o, x) for o, x in zip(out, tensors, strict=True)]


for _name in ("abs", "sqrt"):
    _register_unary(_name)


@emitter("aten._foreach_add.Scalar")
def add_scalar(b, out, self, scalar):
    one = _emitter_of("add", "Scalar")
    return [one(b, o, x, scalar) for o, x in zip(out, self, strict=True)]


@emitter("aten._foreach_add.ScalarList")
def add_scalars(b, out, self, scalars):
    one = _emitter_of("add", "Scalar")
    return [one(b, o, x, s) for o, x, s in zip(out, self, scalars, strict=True)]


@emitter("aten._foreach_addcdiv.ScalarList")
def addcdivs(b, out, self, tensor1, tensor2, scalars):
    one = _emitter_of("addcdiv", "default")
    return [
        one(b, o, x, y, z, s)
        for o, x, y, z, s in zip(out, self, tensor1, tensor2, scalars, strict=True)
    ]
