"""``lower``: one FX graph and its program specification to one StableHLO module."""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torchneuron.lowering import mlir, views
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.errors import LoweringError
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
# One operator's program with storages of so many elements computes on shaped values, see
# `_shaped_body`.
_SHAPED_FROM = 1 << 14
# Storages of at most so many elements are small, see `Lowered`.
_SMALL = 1 << 12
_RNG = (torch.uint64, (2,))


@dataclass(frozen=True)
class Lowered:
    """A module for PJRT's format "mlir".

    ``rng_offset`` is the Philox offset that one execution consumes; at 0 the program takes no
    (seed, offset) operand. ``roads`` tells for each op of the graph which road it took.
    ``reduces_rows`` tells the compiler that large reductions run along memory only, ``small`` that it
    is one operator on few elements, whose program is not worth a long compilation.
    """

    module: bytes
    rng_offset: int
    roads: dict[str, str]
    reduces_rows: bool
    small: bool


def lower(gm: fx.GraphModule, spec: ProgramSpec) -> Lowered:
    """Build the program that ``spec`` describes; LoweringError names the op that has no road."""
    text = lower_to_text(gm, spec)
    built = mlir.build(text.text, has_torch=text.has_torch, has_chlo=text.has_chlo)
    return Lowered(built.artifact, text.rng_offset, text.roads, built.reduces_rows, text.small)


@dataclass(frozen=True)
class ModuleText:
    """A module as MLIR text in generic form, before it is checked."""

    text: str
    rng_offset: int
    roads: dict[str, str]
    has_torch: bool
    has_chlo: bool
    small: bool


def lower_to_text(gm: fx.GraphModule, spec: ProgramSpec) -> ModuleText:
    """The first half of ``lower``, which needs no MLIR."""
    parameters = _Parameters(spec)
    builder = Builder()
    interpreter = Interpreter(builder)
    results = interpreter.run(
        gm, [_Argument(builder, parameters, i) for i in range(len(spec.inputs))]
    )
    outputs = _outputs(builder, parameters, spec, results)
    called = [node.target for node in gm.graph.nodes if node.op == "call_function"]
    single = len([target for target in called if target is not operator.getitem]) == 1
    largest = max((x.numel for x in (*parameters.storages, *outputs)), default=0)
    shaped = single and largest >= _SHAPED_FROM
    text = _module_text(builder, parameters, spec, outputs, shaped)
    return ModuleText(
        text,
        builder.rng_offset,
        interpreter.roads,
        builder.has_torch,
        builder.has_chlo,
        small=single and largest <= _SMALL,
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
    return b.convert(b.kept(result), target.dtype)


def _module_text(
    b: Builder, parameters: _Parameters, spec: ProgramSpec, outputs: list[Val], shaped: bool
) -> str:
    """The module; ``shaped`` allows it to compute on shaped values, see `_shaped_body`."""
    aliases = {
        output.storage: i
        for i, output in enumerate(spec.outputs)
        if isinstance(output, StorageOutput)
    }
    given = parameters.all()
    if b.rng_offset:
        given.append(Val("%rng", *_RNG))
    arguments = []
    for index, parameter in enumerate(given):
        alias = f" {{tf.aliasing_output = {aliases[index]} : i32}}" if index in aliases else ""
        arguments.append(f"{parameter.ir}: {parameter.type}{alias}")
    apart = shaped and not aliases and not b.has_torch
    body = _shaped_body(b, parameters.storages, given, outputs) if apart else _returning(b, outputs)
    types = ", ".join(output.type for output in outputs)
    return (
        "module @torchneuron {\n"
        f"func.func public @main({', '.join(arguments)}) -> ({types}) {{\n"
        f"{body}\n"
        "}\n" + "\n".join(b.functions.values()) + "\n}\n"
    )


def _returning(b: Builder, outputs: Sequence[Val]) -> str:
    types = ", ".join(output.type for output in outputs)
    names = ", ".join(output.ir for output in outputs)
    return f'{b.body_text()}\n"func.return"({names}) : ({types}) -> ()'


def _shaped_body(
    b: Builder, storages: Sequence[Val], given: Sequence[Val], outputs: Sequence[Val]
) -> str:
    """What ``main`` does, in a function of its own with the reshapes of storages around its call.

    Storages are flat. XLA fuses the reshapes from and to them with what happens in between, and then
    finds each element's place in the tensors by divisions, which no vector unit does: a layer norm
    takes three times as long. It fuses nothing across a call that it may not inline. Between many
    operators the divisions are few, and a call that updates its argument would copy it.
    """
    reshapes = b.take_reshapes(storages)
    results = [b.before_reshape(output) for output in outputs]
    inner = _returning(b, results)
    used = set(re.findall(r"%\w+", inner))
    operands = [x for x in given if x.ir in used] + [x for x, _ in reshapes]
    operand_types = ", ".join(x.type for x in operands)
    result_types = ", ".join(x.type for x in results)
    lines = [line for _, line in reshapes]
    several = f":{len(results)}" if len(results) > 1 else ""
    lines.append(
        f'%shaped{several} = "func.call"({", ".join(x.ir for x in operands)}) '
        '{callee = @shaped, mhlo.frontend_attributes = {inlineable = "false"}} '
        f": ({operand_types}) -> ({result_types})"
    )
    flat = []
    for i, (result, output) in enumerate(zip(results, outputs, strict=True)):
        name = f"%shaped#{i}" if several else "%shaped"
        if result.shape != output.shape:
            types = f"({result.type}) -> {output.type}"
            lines.append(f'%flat{i} = "stablehlo.reshape"({name}) : {types}')
            name = f"%flat{i}"
        flat.append(name)
    types = ", ".join(x.type for x in outputs)
    lines.append(f'"func.return"({", ".join(flat)}) : ({types}) -> ()')
    arguments = ", ".join(f"{x.ir}: {x.type}" for x in operands)
    lines += ["}", f"func.func private @shaped({arguments}) -> ({result_types}) {{", inner]
    return "\n".join(lines)
