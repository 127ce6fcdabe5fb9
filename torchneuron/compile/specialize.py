"""One captured graph and the arguments of one call: a program's specification and its plan.

A symbolic graph is not traced again for other sizes: symbols take the values that the arguments
give them, and the same graph is lowered anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchneuron._C import ScalarArgument, ScalarDescription, TensorArgument, TensorDescription
from torchneuron.compile.captured import SYMBOLIC, CapturedGraph, Result, View
from torchneuron.eager.calls import is_dense
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.spec import (
    FreshOutput,
    ProgramSpec,
    ScalarInput,
    StaticInput,
    StorageOutput,
    StorageSpec,
    TensorInput,
)


class Specialization:
    """``spec`` for the lowering, ``plan`` for the core's ``Graph``, without what only lowering tells."""

    def __init__(
        self,
        graph: CapturedGraph,
        args: Sequence[Any],
        tensors: Sequence[TensorDescription],
        scalars: Sequence[ScalarDescription],
    ) -> None:
        """``args`` are the call's, with references by index for tensors and number operands."""
        self._graph = graph
        self._args = args
        self._tensors = tensors
        self._scalars = scalars
        self._symbols, self._ragged = _bind(graph, args, tensors)
        self._storages: list[int] = []
        self._scalar_operands: list[int] = []
        self._offset_operands: list[int] = []
        inputs = tuple(self._input(i) for i in range(len(args)))
        self._read_groups = set(self._storages)
        self.outputs: list[dict[str, Any]] = []
        self._updated: set[int] = set()
        self.host_writes: list[tuple[int, int]] = []
        specs: list[FreshOutput | StorageOutput] = [
            self._fresh(node) for node in graph.outputs[: graph.fresh]
        ]
        specs += [self._written(m.position, inputs) for m in graph.mutations]
        self.spec = ProgramSpec(
            tuple(
                StorageSpec(tensors[g].storage_dtype, tensors[g].storage_numel)
                for g in self._storages
            ),
            inputs,
            tuple(specs),
        )

    def plan(self, random: bool) -> dict[str, Any]:
        """The calling plan, as JSON."""
        operands: list[tuple[str, int]] = [("storage", group) for group in self._storages]
        operands += [("scalar", index) for index in self._scalar_operands]
        operands += [("offset", index) for index in self._offset_operands]
        if random:
            operands.append(("random", 0))
        return {
            "operands": operands,
            "outputs": self.outputs,
            "results": [self._result(result) for result in self._graph.results],
            "host_writes": self.host_writes,
            "donatable": [i for i, group in enumerate(self._storages) if group in self._updated],
        }

    # Inputs

    def _storage(self, group: int) -> int:
        if group not in self._storages:
            self._storages.append(group)
        return self._storages.index(group)

    def _input(self, position: int) -> TensorInput | ScalarInput | StaticInput:
        argument = self._args[position]
        if isinstance(argument, TensorArgument):
            if not self._needed(position):
                return StaticInput(None)
            view = self._view(argument.index)
            if view.dynamic_offset:
                self._offset_operands.append(argument.index)
            return view
        if isinstance(argument, ScalarArgument):
            self._scalar_operands.append(argument.index)
            scalar = self._scalars[argument.index]
            example = scalar.example
            is_tensor = isinstance(example, torch.Tensor)
            return ScalarInput(
                scalar.dtype, example.item() if is_tensor else example, wrapped=not is_tensor
            )
        return StaticInput(argument)

    def _needed(self, position: int) -> bool:
        """Read by the graph, or partly written by it."""
        return self._graph.read[position] or any(
            m.position == position and not self._covers(position) for m in self._graph.mutations
        )

    def _view(self, index: int) -> TensorInput:
        tensor = self._tensors[index]
        return TensorInput(
            self._storage(tensor.storage),
            tensor.dtype,
            tuple(tensor.sizes),
            tuple(tensor.strides),
            not tensor.whole,
        )

    def _covers(self, position: int) -> bool:
        tensor = self._tensors[self._args[position].index]
        return tensor.whole and is_dense(tensor.sizes, tensor.strides)

    # Outputs

    def _fresh(self, node: Any) -> FreshOutput:
        value = node.meta["val"]
        sizes, strides = self._numbers(value.shape), self._numbers(value.stride())
        return self._new(value.dtype, sizes, strides)

    def _new(self, dtype: torch.dtype, sizes: list[int], strides: list[int]) -> FreshOutput:
        if not is_dense(sizes, strides):
            strides = list(torch.empty(sizes, device="meta").stride())
        numel = math.prod(sizes)
        self.outputs.append(
            {
                "tensor": None,
                "dtype": str(dtype),
                "numel": numel,
                "sizes": sizes,
                "strides": strides,
                "count": -1,
            }
        )
        return FreshOutput(dtype, tuple(sizes), tuple(strides))

    def _written(self, position: int, inputs: Sequence[Any]) -> FreshOutput | StorageOutput:
        argument = self._args[position]
        on_host = self._graph.placeholders[position].meta["val"].device.type != "neuron"
        if on_host or isinstance(argument, ScalarArgument):
            value = self._graph.placeholders[position].meta["val"]
            self.host_writes.append((position, len(self.outputs)))
            sizes = self._numbers(value.shape)
            return self._new(value.dtype, sizes, list(torch.empty(sizes, device="meta").stride()))
        tensor = self._tensors[argument.index]
        untouched = tensor.storage not in self._read_groups
        if self._covers(position) and (untouched or tensor.storage_dtype != tensor.dtype):
            numel = math.prod(tensor.sizes)
            self.outputs.append(
                {"tensor": argument.index, "dtype": str(tensor.dtype), "numel": numel}
            )
            return FreshOutput(tensor.dtype, tuple(tensor.sizes), tuple(tensor.strides))
        view = inputs[position]
        self.outputs.append(
            {
                "tensor": argument.index,
                "dtype": str(tensor.storage_dtype),
                "numel": tensor.storage_numel,
            }
        )
        self._updated.add(tensor.storage)
        return StorageOutput(view.storage, view, position)

    # Results

    def _result(self, result: Result) -> dict[str, Any]:
        if result.source == "constant":
            return self._constant(result.value)
        return {
            "kind": result.source,
            "index": result.index,
            "on_host": result.on_host,
            "view": self._placed(result.view) if result.view is not None else None,
        }

    def _constant(self, value: Any) -> dict[str, Any]:
        """A number, or a multiple of an argument that has none."""
        if isinstance(value, torch.SymInt):
            expression = value.node.expr.xreplace(self._symbols)
            for symbol, position in self._ragged.items():
                factor, rest = expression.as_independent(symbol, as_Add=False)
                if rest == symbol and factor.is_Integer:
                    return {"kind": "multiple", "index": position, "factor": int(factor)}
        return {"kind": "constant", "value": self._number(value)}

    def _placed(self, view: View) -> dict[str, Any]:
        return {
            "dtype": str(view.dtype),
            "sizes": self._numbers(view.sizes),
            "strides": self._numbers(view.strides),
            "offset": self._number(view.offset),
        }

    def _numbers(self, values: Sequence[Any]) -> list[int]:
        return [self._number(value) for value in values]

    def _number(self, value: Any) -> Any:
        if not isinstance(value, SYMBOLIC):
            return value
        expression = value.node.expr.xreplace(self._symbols)
        if expression.free_symbols:
            raise LoweringError("output", f"a number that only the run tells: {value}")
        return value.node.pytype(expression)


def _bind(
    graph: CapturedGraph, args: Sequence[Any], tensors: Sequence[TensorDescription]
) -> tuple[dict[Any, Any], dict[Any, int]]:
    """What each symbol of the graph stands for in this call: a number, or the argument at a position,
    which has none. Such is the ragged size of a nested tensor.
    """
    if not graph.symbolic:
        return {}, {}
    import sympy

    found: dict[Any, int] = {}
    ragged: dict[Any, int] = {}

    def match(symbolic: Any, value: int, numbers: dict[Any, int] = found) -> None:
        # Sizes come first: the stride of a dimension of size 1 may be any.
        if isinstance(symbolic, torch.SymInt) and isinstance(symbolic.node.expr, sympy.Symbol):
            numbers.setdefault(symbolic.node.expr, value)

    for position, (node, argument) in enumerate(zip(graph.placeholders, args, strict=True)):
        value = node.meta.get("val")
        if isinstance(argument, TensorArgument):
            tensor = tensors[argument.index]
            for pair in zip(value.shape, tensor.sizes, strict=True):
                match(*pair)
        elif isinstance(argument, int):
            match(value, argument)
        elif isinstance(argument, torch.SymInt):
            match(value, position, ragged)
    for node, argument in zip(graph.placeholders, args, strict=True):
        if isinstance(argument, TensorArgument):
            strides = node.meta["val"].stride()
            for pair in zip(strides, tensors[argument.index].strides, strict=True):
                match(*pair)
    return {symbol: sympy.Integer(number) for symbol, number in found.items()}, ragged
