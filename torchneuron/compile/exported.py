"""A program of ``torch.export`` as a graph like AOTAutograd's, on the device.

torch.export says beside the graph what AOTAutograd writes into it: which results are new values of
buffers or inputs. Those become ``copy_`` nodes here, and the rest of the way is that of any graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchneuron.compile.captured import DEVICE

_STATE = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_MUTATIONS = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.PARAMETER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
)
_RESULTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


class ExportError(ValueError):
    """A program that cannot be exported, a file that is none, or arguments that do not fit it."""


@dataclass(frozen=True)
class Signature:
    """What a caller has to know of an exported program; ready for JSON.

    ``arguments``: one dict for each argument of the graph, ``{"kind": "parameter" | "buffer" |
    "constant", "name": ..., "tensor": ...}`` with the name under which the tensor is kept, which
    tied parameters share, or ``{"kind": "input", "index": ...}``. ``inputs``: the leaves of the
    caller's arguments. ``results``: the leaves of the result, ``{"kind": "result", "index": ...}`` of
    the graph's, or ``{"kind": "constant", "value": ...}``. ``state``: dtype, sizes and strides of the
    tensors kept. Sizes and strides are numbers or expressions of ``symbols``, which have each a
    least and a greatest value, None for no bound.
    """

    arguments: list[dict[str, Any]]
    inputs: list[dict[str, Any]]
    results: list[dict[str, Any]]
    state: dict[str, dict[str, Any]]
    symbols: dict[str, list[int | None]]


def read_signature(program: ExportedProgram) -> tuple[Signature, dict[str, torch.Tensor]]:
    """The signature of a functional program, and the tensors it holds by the name they are kept
    under. Raises ExportError for objects other than tensors and numbers, and for sizes that no
    input tells.
    """
    tensors: dict[str, torch.Tensor] = {}
    arguments: list[dict[str, Any]] = []
    inputs: list[dict[str, Any]] = []
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    for spec in program.graph_signature.input_specs:
        if spec.kind in _STATE:
            arguments.append(_state(program, spec, tensors))
        elif spec.kind is not InputKind.USER_INPUT:
            raise ExportError(f"input {spec.arg.name} is a {spec.kind.name.lower()}, no tensor")
        else:
            if not isinstance(spec.arg, ConstantArgument):
                arguments.append({"kind": "input", "index": len(inputs)})
            inputs.append(_input(spec, nodes, _is_mutated(program, spec)))
    described = {name: layout(tensor) for name, tensor in tensors.items()}
    symbols = {
        str(symbol): [_bound(bounds.lower), _bound(bounds.upper)]
        for symbol, bounds in program.range_constraints.items()
    }
    _check_symbols(symbols, inputs)
    return Signature(arguments, inputs, _results_of(program), described, symbols), tensors


def _state(
    program: ExportedProgram, spec: InputSpec, tensors: dict[str, torch.Tensor]
) -> dict[str, Any]:
    name, kind = str(spec.target), _STATE[spec.kind]
    tensor = program.state_dict.get(name, program.constants.get(name))
    if not isinstance(tensor, torch.Tensor):
        raise ExportError(f"the program does not hold its {kind} {name}")
    place = _place(tensor)
    kept = next((known for known, other in tensors.items() if _place(other) == place), name)
    tensors.setdefault(kept, tensor)
    return {"kind": kind, "name": name, "tensor": kept}


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are the same elements of the same storage."""
    storage = tensor.untyped_storage()._cdata
    start = tensor.storage_offset()
    return storage, start, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())


def _input(spec: InputSpec, nodes: dict[str, fx.Node], mutated: bool) -> dict[str, Any]:
    if isinstance(spec.arg, ConstantArgument):
        return {"kind": "constant", "name": spec.arg.name, "value": spec.arg.value}
    value = nodes[spec.arg.name].meta["val"]
    if isinstance(value, torch.Tensor):
        return {"kind": "tensor", "name": spec.arg.name, "mutated": mutated, **layout(value)}
    if isinstance(value, torch.SymInt | int) and not isinstance(value, bool):
        return {"kind": "integer", "name": spec.arg.name, "value": _size(value)}
    raise ExportError(f"input {spec.arg.name} is a {type(value).__name__}, no tensor or integer")


def _is_mutated(program: ExportedProgram, spec: InputSpec) -> bool:
    return any(
        output.kind is OutputKind.USER_INPUT_MUTATION and output.target == spec.arg.name
        for output in program.graph_signature.output_specs
    )


def _results_of(program: ExportedProgram) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    numbers = itertools.count()
    for output in program.graph_signature.output_specs:
        if output.kind in _RESULTS:
            if isinstance(output.arg, ConstantArgument):
                results.append({"kind": "constant", "value": output.arg.value})
            elif isinstance(output.arg, TensorArgument | SymIntArgument):
                results.append({"kind": "result", "index": next(numbers)})
            else:
                raise ExportError(f"result {output.arg.name} is neither a tensor nor an integer")
        elif output.kind not in _MUTATIONS:
            raise ExportError(f"the program gives a {output.kind.name.lower()}")
    return results


def layout(tensor: torch.Tensor) -> dict[str, Any]:
    """Dtype, sizes and strides of a tensor, ready for JSON."""
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "sizes": [_size(size) for size in tensor.shape],
        "strides": [_size(stride) for stride in tensor.stride()],
    }


def _size(size: Any) -> int | str:
    return str(size.node.expr) if isinstance(size, torch.SymInt) else int(size)


def _check_symbols(symbols: dict[str, list[int | None]], inputs: list[dict[str, Any]]) -> None:
    told = {
        size
        for item in inputs
        for size in (
            *item.get("sizes", ()),
            *([item["value"]] if item["kind"] == "integer" else ()),
        )
    }
    if unknown := [symbol for symbol in symbols if symbol not in told]:
        raise ExportError(
            f"no input has the size {', '.join(unknown)} itself, only expressions of it, or it "
            "depends on data: make such dimensions static or a Dim of their own"
        )


def _bound(value: Any) -> int | None:
    return int(value) if value.is_Integer else None


def on_device(program: ExportedProgram, index: int = 0) -> fx.GraphModule:
    """The graph of a functional program with everything on a device; it takes the ``arguments`` of
    the program's signature and gives its graph results. ``program`` itself is changed.

    What nodes give is inferred anew: a file does not say which results are views.
    """
    device = torch.device(DEVICE, index)
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            _move(module.graph, device)
    graph = program.graph_module.graph
    _infer(program.graph_module, device)
    _write_mutations(program, graph)
    for spec in program.graph_signature.input_specs:
        if isinstance(spec.arg, ConstantArgument):
            _erase(graph, spec.arg.name)
    graph.lint()
    return fx.GraphModule(program.graph_module, graph)


def forget_constants(program: ExportedProgram) -> None:
    """Make None of the results that are constants; a signature read before keeps them."""
    (output,) = program.graph.find_nodes(op="output")
    specs = program.graph_signature.output_specs
    constant = [isinstance(spec.arg, ConstantArgument) for spec in specs]
    values = _results(output.args[0])
    output.args = (
        tuple(
            None if is_constant else value
            for value, is_constant in zip(values, constant, strict=True)
        ),
    )
    for spec in specs:
        if isinstance(spec.arg, ConstantArgument):
            spec.arg = ConstantArgument(spec.arg.name, None)


def _move(graph: fx.Graph, device: torch.device) -> None:
    def moved(value: Any) -> Any:
        return device if isinstance(value, torch.device) else value

    for node in graph.nodes:
        node.args = fx.node.map_aggregate(node.args, moved)
        node.kwargs = fx.node.map_aggregate(node.kwargs, moved)


class _Infer(fx.Interpreter):
    """Runs a graph on fake tensors and keeps what every node gives."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op != "output":
            n.meta["val"] = result
        return result


def _infer(module: fx.GraphModule, device: torch.device) -> None:
    values = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    mode = detect_fake_mode(values) or FakeTensorMode(shape_env=ShapeEnv())
    with mode, torch.no_grad():
        moved = [
            torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
            if isinstance(value, torch.Tensor)
            else value
            for value in values
        ]
        _Infer(module).run(*moved, enable_io_processing=False)


def _write_mutations(program: ExportedProgram, graph: fx.Graph) -> None:
    """Turn the results that are new values of arguments into ``copy_`` nodes."""
    (output,) = graph.find_nodes(op="output")
    nodes = {node.name: node for node in graph.find_nodes(op="placeholder")}
    held = {
        str(spec.target): spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind in _STATE
    }
    kept: list[Any] = []
    for spec, value in zip(
        program.graph_signature.output_specs, _results(output.args[0]), strict=True
    ):
        if spec.kind in _MUTATIONS:
            name = str(spec.target)
            target = nodes[name if spec.kind is OutputKind.USER_INPUT_MUTATION else held[name]]
            with graph.inserting_before(output):
                graph.call_function(torch.ops.aten.copy_.default, (target, value))
        elif not isinstance(spec.arg, ConstantArgument):
            kept.append(value)
    output.args = (tuple(kept),)


def _results(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _erase(graph: fx.Graph, name: str) -> None:
    for node in graph.find_nodes(op="placeholder"):
        if node.name == name and not node.users:
            graph.erase_node(node)
