"""Ops that Torch-MLIR lowers: emitted as torch.aten ops between casts inside the function."""

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import is_complex, is_integer, is_unsigned, mlir_name
from torchneuron.lowering.errors import LoweringError

# Torch-MLIR writes dtypes, layouts and memory formats as these numbers of c10's enumerations.
_DTYPE_CODES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}


def _vtensor(dtype: torch.dtype, shape: Sequence[int], op: OpOverload) -> str:
    if is_complex(dtype) or is_unsigned(dtype) or dtype not in _DTYPE_CODES:
        raise LoweringError(op, f"Torch-MLIR does not take {dtype}")
    name = f"s{mlir_name(dtype)}" if is_integer(dtype) else mlir_name(dtype)
    return f"!torch.vtensor<[{','.join(map(str, shape))}],{name}>"


class _Writer:
    """Names and types of one torch op's operands."""

    def __init__(self, b: Builder, op: OpOverload):
        self._b = b
        self._op = op

    def _line(self, text: str) -> str:
        name = self._b.name()
        self._b.raw(f"{name} = {text}")
        return name

    def _constant(self, kind: str, attr: str) -> tuple[str, str]:
        return self._line(
            f'"torch.constant.{kind}"() {attr} : () -> !torch.{kind}'
        ), f"!torch.{kind}"

    def argument(self, value: Any) -> tuple[str, str]:
        """(SSA name, type) of one argument."""
        if isinstance(value, Val):
            target = _vtensor(value.dtype, value.shape, self._op)
            return self._line(
                f"torch_c.from_builtin_tensor {value.ir} : {value.type} -> {target}"
            ), target
        if value is None:
            return self._line('"torch.constant.none"() : () -> !torch.none'), "!torch.none"
        if isinstance(value, bool):
            return self._constant("bool", f"{{value = {str(value).lower()}}}")
        if isinstance(value, int):
            return self._constant("int", f"{{value = {value} : i64}}")
        if isinstance(value, float):
            return self._constant("float", f"{{value = {value:.17e} : f64}}")
        if isinstance(value, torch.dtype):
            return self._constant("int", f"{{value = {_DTYPE_CODES[value]} : i64}}")
        if isinstance(value, str):
            return self._constant("str", f'{{value = "{value}"}}')
        if isinstance(value, (list, tuple)):
            return self._list(value)
        raise LoweringError(
            self._op, f"Torch-MLIR is not given arguments of type {type(value).__name__}"
        )

    def _list(self, values: Sequence[Any]) -> tuple[str, str]:
        items = [self.argument(value) for value in values]
        kinds = {kind for _, kind in items} or {"!torch.int"}
        if any(kind.startswith("!torch.vtensor") for kind in kinds):
            kinds = {"!torch.vtensor"}
        if len(kinds) != 1:
            raise LoweringError(self._op, f"a list of {sorted(kinds)}")
        element = kinds.pop().removeprefix("!torch.")
        names, types = ", ".join(name for name, _ in items), ", ".join(kind for _, kind in items)
        target = f"!torch.list<{element}>"
        return self._line(f'"torch.prim.ListConstruct"({names}) : ({types}) -> {target}'), target


def emit(b: Builder, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    """Emit ``op`` for Torch-MLIR; LoweringError for dtypes and arguments that it must not see."""
    b.has_torch = True
    writer = _Writer(b, op)
    operands = []
    for index, argument in enumerate(op._schema.arguments):
        value = (
            args[index] if index < len(args) else kwargs.get(argument.name, argument.default_value)
        )
        operands.append(writer.argument(value))
    outs = out if isinstance(out, (tuple, list)) else [out]
    types = [_vtensor(one.dtype, tuple(one.shape), op) for one in outs]
    namespace, name, overload = str(op).split(".")
    suffix = "" if overload == "default" else f".{overload}"
    result = b.name()
    left = result if len(outs) == 1 else f"{result}:{len(outs)}"
    b.raw(
        f'{left} = "torch.{namespace}.{name}{suffix}"({", ".join(name for name, _ in operands)})'
        f" : ({', '.join(kind for _, kind in operands)}) -> ({', '.join(types)})"
    )
    values = []
    for index, (one, kind) in enumerate(zip(outs, types, strict=True)):
        source = result if len(outs) == 1 else f"{result}#{index}"
        value = Val(b.name(), one.dtype, tuple(one.shape))
        b.raw(f"{value.ir} = torch_c.to_builtin_tensor {source} : {kind} -> {value.type}")
        values.append(value)
    return values if isinstance(out, (tuple, list)) else values[0]
