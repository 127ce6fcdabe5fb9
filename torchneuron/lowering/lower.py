"""``lower``: one FX graph and its program specification to one StableHLO module."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torchneuron.lowering import mlir, views
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.hlo.value import tensor_type
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.spec import (
    FreshOutput,
    ProgramSpec,
    ScalarInput,
    ScalarListInput,
    StaticInput,
    StorageOutput,
    TensorInput,
)

_I64 = torch.int64
_RNG = (torch.uint64, (2,))


@dataclass(frozen=True)
class Lowered:
    """A module for PJRT's format "mlir".

    ``rng_offset`` is the Philox offset that one execution consumes; at 0 the program takes no
    (seed, offset) operand. ``roads`` tells for each op of the graph which road it took.
    """

    module: bytes
    rng_offset: int
    roads: dict[str, str]


def lower(gm: fx.GraphModule, spec: ProgramSpec) -> Lowered:
    """Build the program that ``spec`` describes; LoweringError names the op that has no road."""
    text = lower_to_text(gm, spec)
    module = mlir.build(text.text, has_torch=text.has_torch, has_chlo=text.has_chlo)
    return Lowered(module, text.rng_offset, text.roads)


@dataclass(frozen=True)
class ModuleText:
    """A module as MLIR text in generic form, before it is checked."""

    text: str
    rng_offset: int
    roads: dict[str, str]
    has_torch: bool
    has_chlo: bool


def lower_to_text(gm: fx.GraphModule, spec: ProgramSpec) -> ModuleText:
    """The first half of ``lower``, which needs no MLIR."""
    parameters = _Parameters(spec)
    builder = Builder()
    interpreter = Interpreter(builder)
    results = interpreter.run(
        gm, [_Argument(builder, parameters, i) for i in range(len(spec.inputs))]
    )
    outputs = _outputs(builder, parameters, spec, results)
    text = _module_text(builder, parameters, spec, outputs)
    return ModuleText(
        text, builder.rng_offset, interpreter.roads, builder.has_torch, builder.has_chlo
    )


class _Parameters:
    """The function's parameters in order; names are %s0.. for storages, %n0.. for numbers, %o0..
    for offsets.
    """

    def __init__(self, spec: ProgramSpec):
        self.spec = spec
        self.storages = [Val(f"%s{i}", s.dtype, (s.numel,)) for i, s in enumerate(spec.storages)]
        self.scalars: dict[int, Val] = {}
        self.offsets: dict[int, Val] = {}
        for index, item in enumerate(spec.inputs):
            if isinstance(item, ScalarInput):
                self.scalars[index] = Val(f"%n{index}", item.dtype, (), wrapped=item.wrapped)
            elif isinstance(item, ScalarListInput):
                self.scalars[index] = Val(f"%n{index}", item.dtype, (item.length,))
            elif isinstance(item, TensorInput) and item.dynamic_offset:
                self.offsets[index] = Val(f"%o{index}", _I64, ())

    def all(self) -> list[Val]:
        return [*self.storages, *self.scalars.values(), *self.offsets.values()]


class _Argument:
    """A placeholder's value, read from its storage when first used."""

    def __init__(self, builder: Builder, parameters: _Parameters, index: int):
        self._builder = builder
        self._parameters = parameters
        self._index = index
        self._spec = parameters.spec.inputs[index]
        self._value: Val | list[Val] | None = None

    def example(self) -> Any:
        """A meta tensor or the example number(s), for shape inference."""
        if isinstance(self._spec, StaticInput):
            return self._spec.value
        if isinstance(self._spec, ScalarInput):
            if not self._spec.wrapped:
                return torch.empty((), dtype=self._spec.dtype, device="meta")
            return self._spec.example
        if isinstance(self._spec, ScalarListInput):
            return list(self._spec.example)
        return torch.empty_strided(
            self._spec.sizes, self._spec.strides, dtype=self._spec.dtype, device="meta"
        )

    def value(self) -> Any:
        if isinstance(self._spec, StaticInput):
            return self._spec.value
        if self._value is None:
            if isinstance(self._spec, ScalarInput):
                self._value = self._parameters.scalars[self._index]
            elif isinstance(self._spec, ScalarListInput):
                self._value = _numbers(self._builder, self._parameters.scalars[self._index])
            else:
                flat = self._parameters.storages[self._spec.storage]
                offset = self._parameters.offsets.get(self._index)
                self._value = views.read(self._builder, flat, self._spec, offset)
        return self._value


def _numbers(b: Builder, packed: Val) -> list[Val]:
    """The elements of a list operand (n,), each 0-d and counted as a Python number."""
    elements = (b.reshape(b.slice_dim(packed, 0, i, i + 1), ()) for i in range(packed.numel))
    return [Val(element.ir, element.dtype, (), wrapped=True) for element in elements]


def _outputs(
    b: Builder, parameters: _Parameters, spec: ProgramSpec, results: Sequence[Any]
) -> list[Val]:
    if len(results) != len(spec.outputs):
        raise LoweringError(
            "output", f"the graph gives {len(results)} values, the program {len(spec.outputs)}"
        )
    current = list(parameters.storages)
    fresh: dict[int, Val] = {}
    for index, (output, result) in enumerate(zip(spec.outputs, results, strict=True)):
        target = output.target if isinstance(output, StorageOutput) else output
        value = _fit(b, result, target)
        if isinstance(output, StorageOutput):
            offset = None
            if output.target.dynamic_offset:
                offset = parameters.offsets[spec.offset_operand(output)]
            current[output.storage] = views.write(
                b, current[output.storage], value, output.target, offset
            )
        else:
            fresh[index] = views.dense_to_flat(b, value, output.strides)
    return [
        current[output.storage] if isinstance(output, StorageOutput) else fresh[index]
        for index, output in enumerate(spec.outputs)
    ]


def _fit(b: Builder, result: Any, target: TensorInput | FreshOutput) -> Val:
    """``result`` in the dtype and shape that the output asks for."""
    if not isinstance(result, Val):
        return b.full(target.sizes, result, target.dtype)
    if result.shape != target.sizes:
        raise LoweringError(
            "output", f"a value of shape {result.shape} for an output of shape {target.sizes}"
        )
    return b.convert(result, target.dtype)


def _module_text(b: Builder, parameters: _Parameters, spec: ProgramSpec, outputs: list[Val]) -> str:
    aliases = {
        output.storage: i
        for i, output in enumerate(spec.outputs)
        if isinstance(output, StorageOutput)
    }
    arguments = []
    for index, parameter in enumerate(parameters.all()):
        alias = f" {{tf.aliasing_output = {aliases[index]} : i32}}" if index in aliases else ""
        arguments.append(f"{parameter.ir}: {parameter.type}{alias}")
    if b.rng_offset:
        arguments.append(f"%rng: {tensor_type(*_RNG)}")
    types = ", ".join(output.type for output in outputs)
    names = ", ".join(output.ir for output in outputs)
    return (
        "module @torchneuron {\n"
        f"func.func public @main({', '.join(arguments)}) -> ({types}) {{\n"
        f"{b.body_text()}\n"
        f'"func.return"({names}) : ({types}) -> ()\n'
        "}\n}\n"
    )
