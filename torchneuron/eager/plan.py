"""A call's FX graph, program specification and calling plan."""

import contextlib
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torchneuron._C import TensorArgument, TensorDescription
from torchneuron.eager.calls import Call, is_dense
from torchneuron.eager.functional import Functional
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.spec import (
    FreshOutput,
    ProgramSpec,
    ScalarInput,
    ScalarListInput,
    StorageOutput,
    StorageSpec,
    TensorInput,
)
from torchneuron.program.session import flags_of

_META = torch.device("meta")

# Of a result that is a number: the core keeps it with 32 bits.
_MAX_NUMBER = 1 << 32


@dataclass(frozen=True)
class Built:
    """A lowered call: what the compiler wants, and the metadata to keep with the program."""

    module: bytes
    rng_offset: int
    roads: dict[str, str]
    metadata: dict[str, Any]
    graph: str
    flags: dict[str, str]


def _functional_args(
    call: Call, form: Functional, values: Sequence[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """``values`` (by the call's schema) as the arguments of the functional op."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for position, argument in zip(form.args, form.op._schema.arguments, strict=True):
        value = (
            values[position] if position is not None else _factory_value(call, form, argument.name)
        )
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    if "device" in kwargs:
        kwargs["device"] = _META
    if "pin_memory" in kwargs:
        kwargs["pin_memory"] = None
    if "generator" in kwargs:
        kwargs["generator"] = None
    return args, kwargs


def _factory_value(call: Call, form: Functional, name: str) -> Any:
    if name != "dtype":
        return None
    out = call.args[form.targets[0]]
    return call.tensors[out.index].dtype


def _on_meta(value: Any) -> Any:
    return (
        _META
        if isinstance(value, torch.device)
        else None
        if isinstance(value, torch.Generator)
        else value
    )


def _meta_arguments(call: Call, form: Functional) -> tuple[list[Any], dict[str, Any]]:
    """The functional op's arguments on the meta device."""
    tensors, examples = call.meta_tensors(), call.scalar_examples()
    values = [_on_meta(v) for v in call.substitute(tensors.__getitem__, examples.__getitem__)]
    return _functional_args(call, form, values)


def infer(call: Call, form: Functional) -> list[Any]:
    """Shape inference on the meta device: the outputs of the functional op, one for each of its return values."""
    from torchneuron.lowering.interpreter import infer as infer_op

    args, kwargs = _meta_arguments(call, form)
    try:
        result = infer_op(form.op, args, kwargs)
    except NotImplementedError as error:
        # No meta kernel, so that the result's shape is unknown. A CPU tensor among the operands is caught earlier.
        raise LoweringError(str(form.op), "PyTorch cannot infer its result's shape") from error
    return [result] if len(form.op._schema.returns) == 1 else list(result or ())


def check(call: Call) -> None:
    """Run a mutating call itself on meta tensors, for the errors that PyTorch raises: dtype, shape, overlap."""
    tensors, examples = call.meta_tensors(), call.scalar_examples()
    values = [_on_meta(v) for v in call.substitute(tensors.__getitem__, examples.__getitem__)]
    schema = call.op._schema.arguments
    args = [v for v, a in zip(values, schema, strict=True) if not a.kwarg_only]
    kwargs = {a.name: v for v, a in zip(values, schema, strict=True) if a.kwarg_only}
    # Without a meta kernel the functional form's own checks must do.
    with contextlib.suppress(NotImplementedError):
        call.op(*args, **kwargs)


class _Planner:
    """Collects storages, inputs and outputs of the program while the graph is built."""

    def __init__(self, call: Call, form: Functional):
        self.call = call
        self.form = form
        self.graph = fx.Graph()
        self.storages: list[int] = []  # group -> by position
        self.inputs: list[TensorInput | ScalarInput | ScalarListInput] = []
        self.scalar_operands: list[int] = []
        self.offset_operands: list[int] = []
        self.nodes: dict[tuple[str, int], fx.Node] = {}
        self.input_of_tensor: dict[int, int] = {}

    def storage(self, group: int) -> int:
        if group not in self.storages:
            self.storages.append(group)
        return self.storages.index(group)

    def view(self, index: int) -> TensorInput:
        tensor = self.call.tensors[index]
        return TensorInput(
            self.storage(tensor.storage),
            tensor.dtype,
            tuple(tensor.sizes),
            tuple(tensor.strides),
            not tensor.whole,
        )

    def tensor(self, index: int) -> fx.Node:
        if ("t", index) not in self.nodes:
            self.input_of_tensor[index] = len(self.inputs)
            self.inputs.append(self.view(index))
            if self.inputs[-1].dynamic_offset:  # type: ignore[union-attr]
                self.offset_operands.append(index)
            self.nodes["t", index] = self.graph.placeholder(f"t{index}")
        return self.nodes["t", index]

    def scalar(self, index: int) -> fx.Node:
        if ("s", index) not in self.nodes:
            scalar = self.call.scalars[index]
            if scalar.length:
                self.inputs.append(
                    ScalarListInput(scalar.dtype, scalar.length, tuple(scalar.example))
                )
            else:
                example = scalar.example
                if isinstance(example, torch.Tensor):
                    example = example.item()
                self.inputs.append(
                    ScalarInput(scalar.dtype, example, self.call.counts_as_number(scalar))
                )
            self.scalar_operands.append(index)
            self.nodes["s", index] = self.graph.placeholder(f"s{index}")
        return self.nodes["s", index]

    def used_groups(self) -> set[int]:
        return {self.call.tensors[index].storage for kind, index in self.nodes if kind == "t"}


def build(call: Call, form: Functional) -> Built:
    """Lower a call. Raises LoweringError if no road leads to StableHLO, and PyTorch's errors for wrong arguments."""
    from torchneuron.lowering.bounded import bounded_outputs, padded_values
    from torchneuron.lowering.lower import lower

    if form.targets:
        check(call)
    padded = None if form.targets else bounded_outputs(form.op, *_meta_arguments(call, form))
    items = infer(call, form) if padded is None else list(padded_values(padded))
    planner = _Planner(call, form)
    node = _node(planner)
    if padded is not None:
        node.meta["val"] = tuple(items)
    results = _Results(planner, node, items)
    for output, described in zip(results.outputs, padded or (), strict=False):
        output["count"] = described.count
    planner.graph.output(tuple(results.nodes))
    spec = ProgramSpec(
        tuple(_storage_spec(call, group) for group in planner.storages),
        tuple(planner.inputs),
        tuple(results.specs),
    )
    lowered = lower(_module(planner.graph), spec)
    plan = {
        "operands": _operands(planner, bool(lowered.rng_offset)),
        "outputs": results.outputs,
        "returns": _returns(call, results.fresh),
        "donatable": [i for i, group in enumerate(planner.storages) if group in results.updated],
        "bounded": padded is not None,
    }
    return Built(
        lowered.module,
        lowered.rng_offset,
        lowered.roads,
        {"plan": plan},
        str(planner.graph),
        flags_of(reduces_rows=lowered.reduces_rows, small=lowered.small),
    )


def _module(graph: fx.Graph) -> Any:
    """The graph as a module without generated code: there are overloads named like Python's keywords."""
    module: Any = torch.nn.Module()
    module.graph = graph
    return module


def _storage_spec(call: Call, group: int) -> StorageSpec:
    tensor = call.tensors[group]
    return StorageSpec(tensor.storage_dtype, tensor.storage_numel)


def _node(planner: _Planner) -> fx.Node:
    """The call as one node; before it the placeholders, those of partly written targets included."""
    call, form = planner.call, planner.form
    values: list[Any] = [None] * len(call.args)
    for position in sorted(position for position in form.args if position is not None):
        values[position] = call.substitute(planner.tensor, planner.scalar, [call.args[position]])[0]
    for index in _target_indices(call, form):
        if not _covers(call.tensors[index]):
            planner.tensor(index)
    args, kwargs = _functional_args(call, form, [_on_meta(value) for value in values])
    return planner.graph.call_function(form.op, tuple(args), kwargs)


def _target_indices(call: Call, form: Functional) -> list[int]:
    return [item.index for position in form.targets for item in _tensors_of(call.args[position])]


def _tensors_of(argument: Any) -> list[TensorArgument]:
    if isinstance(argument, list):
        return [item for item in argument if isinstance(item, TensorArgument)]
    return [argument] if isinstance(argument, TensorArgument) else []


def _covers(tensor: TensorDescription) -> bool:
    """A write to the tensor replaces its whole storage."""
    return tensor.whole and is_dense(tensor.sizes, tensor.strides)


class _Results:
    """The program's outputs: new tensors first, then the new values of what the call writes."""

    def __init__(self, planner: _Planner, node: fx.Node, items: Sequence[Any]):
        self._planner = planner
        self.nodes: list[fx.Node] = []
        self.specs: list[FreshOutput | StorageOutput] = []
        self.outputs: list[dict[str, Any]] = []
        self.fresh: list[tuple[str, list[int]]] = []
        self.updated: set[int] = set()
        nodes = [node] if len(items) == 1 else [self._item(node, i) for i in range(len(items))]
        split = planner.form.fresh if planner.form.targets else len(items)
        for item, value in zip(items[:split], nodes[:split], strict=True):
            self._add_fresh(item, value)
        targets = [planner.call.args[position] for position in planner.form.targets]
        for argument, item, value in zip(targets, items[split:], nodes[split:], strict=True):
            self._add_target(argument, item, value)

    def _item(self, node: fx.Node, index: int) -> fx.Node:
        return self._planner.graph.call_function(operator.getitem, (node, index))

    def _add_fresh(self, item: Any, node: fx.Node) -> None:
        if isinstance(item, torch.Tensor):
            self.fresh.append(("output", [self._fresh_tensor(item, node)]))
        elif isinstance(item, (list, tuple)):
            indices = [self._fresh_tensor(leaf, self._item(node, i)) for i, leaf in enumerate(item)]
            self.fresh.append(("list", indices))
        elif item is None:
            self.fresh.append(("undefined", []))
        elif isinstance(item, int) and 0 <= item < _MAX_NUMBER:
            self.fresh.append(("number", [item]))
        else:
            raise LoweringError(
                str(self._planner.form.op), f"a result of type {type(item).__name__}"
            )

    def _fresh_tensor(self, item: torch.Tensor, node: fx.Node) -> int:
        sizes, strides = list(item.shape), list(item.stride())
        if not is_dense(sizes, strides):
            strides = list(torch.empty(sizes, device="meta").stride())
        self.nodes.append(node)
        self.specs.append(FreshOutput(item.dtype, tuple(sizes), tuple(strides)))
        self.outputs.append(
            {
                "tensor": None,
                "dtype": str(item.dtype),
                "numel": item.numel(),
                "sizes": sizes,
                "strides": strides,
                "count": -1,
            }
        )
        return len(self.outputs) - 1

    def _add_target(self, argument: Any, item: Any, node: fx.Node) -> None:
        if isinstance(argument, TensorArgument):
            self._write(argument.index, node)
        elif isinstance(argument, list):
            for i, leaf in enumerate(argument):
                if isinstance(leaf, TensorArgument):
                    self._write(leaf.index, self._item(node, i))

    def _write(self, index: int, node: fx.Node) -> None:
        planner = self._planner
        tensor = planner.call.tensors[index]
        if math.prod(tensor.sizes) == 0:
            return
        replaced = _covers(tensor) and (
            tensor.storage not in planner.used_groups() or tensor.storage_dtype != tensor.dtype
        )
        self.nodes.append(node)
        if replaced:
            self.specs.append(FreshOutput(tensor.dtype, tuple(tensor.sizes), tuple(tensor.strides)))
            self._output(index, tensor.dtype, math.prod(tensor.sizes))
            return
        view = planner.view(index)
        self.specs.append(StorageOutput(view.storage, view, planner.input_of_tensor.get(index)))
        self._output(index, tensor.storage_dtype, tensor.storage_numel)
        self.updated.add(tensor.storage)

    def _output(self, index: int, dtype: torch.dtype, numel: int) -> None:
        self.outputs.append({"tensor": index, "dtype": str(dtype), "numel": numel})


def _operands(planner: _Planner, random: bool) -> list[tuple[str, int]]:
    operands = [("storage", group) for group in planner.storages]
    operands += [("scalar", index) for index in planner.scalar_operands]
    operands += [("offset", index) for index in planner.offset_operands]
    return [*operands, ("random", 0)] if random else operands


def _returns(call: Call, fresh: Sequence[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """What the core pushes for each return value of the op."""
    aliases = {
        name: position
        for position, argument in enumerate(call.op._schema.arguments)
        if argument.alias_info is not None
        for name in argument.alias_info.before_set
    }
    remaining = iter(fresh)
    result: list[tuple[str, list[int]]] = []
    for item in call.op._schema.returns:
        if item.alias_info is None:
            result.append(next(remaining))
        else:
            result.append(("argument", [aliases[name] for name in item.alias_info.before_set]))
    return result
