"""``torch.neuron.export``: a program as a file that runs without the model's Python code.

The file is a NEFF (``torchneuron.program.neff``) with two members more:

    weights.safetensors   parameters, buffers and constants
    graph.pt2             the graph as ``torch.export.save`` writes it, without weights: from it the
                          program is specialised for arguments of other shapes or layouts

The program inside is the one for the example arguments: those that were given or traced with.
"""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from torchneuron import _C
from torchneuron.compile import exported, higher_order
from torchneuron.compile.captured import DEVICE
from torchneuron.compile.compiled import Built, CompiledGraph, describe
from torchneuron.compile.dimensions import Dimensions
from torchneuron.compile.exported import ExportError, Signature
from torchneuron.compile.options import Options
from torchneuron.program.compiler import Compiler, Program
from torchneuron.program.neff import Member, Neff
from torchneuron.program.safetensors import Tensors
from torchneuron.program.session import compile_flags, toolchain

KIND = "exported program"
FORMAT = 1
WEIGHTS = "weights.safetensors"
GRAPH = "graph.pt2"
# What of a program's key says where its executable can be loaded.
_MACHINE = ("plugin", "host", "target", "options")

PathLike = str | os.PathLike[str]


def export(
    program: ExportedProgram | torch.nn.Module,
    args: Sequence[Any] | None = None,
    path: PathLike | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    strict: bool = False,
    stablehlo: PathLike | None = None,
) -> Neff:
    """Compile a program of ``torch.export`` and write it to a file.

    ``program`` is what ``torch.export.export`` gave, or a module, which is exported first with
    ``dynamic_shapes`` and ``strict``. ``args`` and ``kwargs`` are example arguments on any device;
    an exported program has its own. The file at ``path`` holds the program for their shapes, the
    weights, and the graph, so that other shapes, where they are dynamic, need neither the model's
    code nor tracing. Everything the program did on another device it does on ``neuron``.

    ``stablehlo`` is where to write the StableHLO portable artifact by itself. Its function takes and
    gives flat 1-D tensors, in the order of the file's ``operands`` (``torchneuron export --show``).

    Gives the file's contents. Raises ExportError for a program with objects other than tensors and
    numbers, LoweringError for an operation that cannot be lowered, TypeError for a weight's dtype
    that the file cannot hold.

        torch.neuron.export(model.eval(), (torch.randn(8, 3, 224, 224),), "model.neff")
        model = torch.neuron.load_exported("model.neff")
        model(torch.randn(8, 3, 224, 224, device="neuron"))
    """
    if isinstance(program, torch.nn.Module):
        higher_order.register()
        program = torch.export.export(
            program,
            tuple(args or ()),
            dict(kwargs or {}),
            dynamic_shapes=dynamic_shapes,
            strict=strict,
        )
        args = kwargs = None
    elif dynamic_shapes is not None:
        raise ExportError("an exported program has its dynamic shapes already")
    example = None if args is None and kwargs is None else (tuple(args or ()), dict(kwargs or {}))
    name = "exported" if path is None else Path(path).stem
    neff = _compiled(program, example, name)
    if path is not None:
        _write(Path(path), neff.write)
    if stablehlo is not None:
        _write(Path(stablehlo), lambda file: file.write(neff.stablehlo))
    return neff


def _compiled(program: ExportedProgram, example: tuple[Any, Any] | None, name: str) -> Neff:
    leaves = _leaves(program, example or program.example_inputs)
    functional = program.run_decompositions({})
    signature, state = exported.read_signature(functional)
    saved = _without_weights(functional)
    compiled = CompiledGraph(exported.on_device(functional), "exported", Options())
    found = _compile(compiled, _arguments(signature, leaves))
    interface = {
        "kind": KIND,
        "format": FORMAT,
        "in_spec": _dumped(program.call_spec.in_spec),
        "out_spec": _dumped(program.call_spec.out_spec),
        **dataclasses.asdict(signature),
        "key": found.key.hex(),
        "machine": machine(),
        "operands": _named(found.operands, signature),
    }
    members: dict[str, Member] = {WEIGHTS: Tensors(state), GRAPH: saved}
    serialized, cost = _serialized(found.program.executable)
    return Neff(found.module, serialized, name, interface, found.program.metadata, cost, members)


def machine() -> dict[str, str]:
    """Where this process's executables can be loaded: hashes of plugin, host, target, options."""
    return {name: value for name, value in toolchain().parts(b"") if name in _MACHINE}


def _leaves(program: ExportedProgram, example: tuple[Any, Any] | None) -> list[Any]:
    if example is None:
        raise ExportError("the program has no example arguments: give some")
    leaves, spec = pytree.tree_flatten(example)
    if spec != program.call_spec.in_spec:
        raise ExportError(
            f"the example arguments are {spec}, those of the program {program.call_spec.in_spec}"
        )
    return leaves


def _without_weights(program: ExportedProgram) -> bytes:
    """The program as ``torch.export.save`` writes it, with fake tensors for weights and None for
    constant results, of which ``torch.export.load`` does not take all.
    """
    mode = FakeTensorMode()
    exported.forget_constants(program)

    def fake(tensor: Any) -> Any:
        with mode:
            empty = torch.empty(tensor.shape, dtype=tensor.dtype)
            if isinstance(tensor, torch.nn.Parameter):
                return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
            return empty

    light = ExportedProgram(
        program.graph_module,
        program.graph,
        program.graph_signature,
        {name: fake(tensor) for name, tensor in program.state_dict.items()},
        program.range_constraints,
        program.module_call_graph,
        None,
        {name: fake(tensor) for name, tensor in program.constants.items()},
        verifiers=program.verifiers,
    )
    file = io.BytesIO()
    torch.export.save(light, file)
    return file.getvalue()


def _arguments(signature: Signature, leaves: Sequence[Any]) -> list[Any]:
    """Tensors like the call's on the device; nothing is computed with them and none holds memory."""

    def empty(item: Mapping[str, Any], sizes: Sequence[int], strides: Sequence[int]) -> Any:
        dtype = getattr(torch, item["dtype"])
        return torch.empty_strided(sizes, strides, dtype=dtype, device=DEVICE)

    def like(item: Mapping[str, Any]) -> Any:
        if item["kind"] != "input":
            return state[item["tensor"]]
        leaf, described = leaves[item["index"]], signature.inputs[item["index"]]
        if not isinstance(leaf, torch.Tensor):
            return leaf
        dims = Dimensions(signature.symbols, signature.inputs)
        sizes, strides = dims.layout(described, dims.bind(leaves))
        return empty(described, sizes, strides)

    state = {
        name: empty(item, item["sizes"], item["strides"]) for name, item in signature.state.items()
    }
    return [like(item) for item in signature.arguments]


@dataclass(frozen=True)
class _Found:
    program: Program
    module: bytes
    key: bytes
    operands: list[dict[str, Any]]


def _compile(compiled: CompiledGraph, arguments: list[Any]) -> _Found:
    """The program for the arguments. The core describes them as for a call; nothing is run."""
    found: list[_Found] = []

    def resolve(args: Any, tensors: Any, scalars: Any, key: bytes, device: int) -> dict[str, Any]:
        lowered: list[Built] = []

        def lower() -> Built:
            lowered.append(compiled.lower(args, tensors, scalars))
            return lowered[-1]

        # Without a cache: of an executable that was loaded XLA:CPU serialises only a part.
        program = Compiler(_C.client).compile_program(
            toolchain().parts(key),
            lower,
            {},
            _C.ordinal(device),
            op=compiled.name,
            signature=describe(args, tensors),
            graph=lambda: str(compiled.captured.module.graph),
            flags=compile_flags(),
        )
        operands = [
            _operand(kind, index, args, tensors)
            for kind, index in program.metadata["plan"]["operands"]
        ]
        found.append(_Found(program, lowered[-1].module, key, operands))
        return {"kind": "eager"}

    numbers = [False] * len(arguments)
    probe = _C.Graph(compiled.name, _C.current_device(), numbers, 1, resolve, _nothing)
    probe(list(arguments))
    return found[0]


def _operand(kind: str, index: int, args: Sequence[Any], tensors: Sequence[Any]) -> dict[str, Any]:
    """One operand of the program, with the positions of the arguments it stands for."""
    if kind == "random":
        return {"kind": kind, "arguments": [], "dtype": "uint64", "numel": 2}
    positions = {
        argument.index: position
        for position, argument in enumerate(args)
        if isinstance(argument, _C.TensorArgument)
    }
    if kind == "offset":
        return {"kind": kind, "arguments": [positions[index]], "dtype": "int64", "numel": 1}
    views = [i for i, tensor in enumerate(tensors) if tensor.storage == index]
    return {
        "kind": kind,
        "arguments": [positions[i] for i in views],
        "dtype": str(tensors[views[0]].storage_dtype).removeprefix("torch."),
        "numel": tensors[views[0]].storage_numel,
    }


def _named(operands: Sequence[Mapping[str, Any]], signature: Signature) -> list[dict[str, Any]]:
    """The operands with the arguments' names instead of their positions."""

    def name(position: int) -> str:
        item = signature.arguments[position]
        found = signature.inputs[item["index"]] if item["kind"] == "input" else item
        return str(found["name"])

    return [{**item, "arguments": [name(i) for i in item["arguments"]]} for item in operands]


def _nothing(args: list[Any]) -> tuple[()]:
    return ()


def _serialized(executable: Any) -> tuple[bytes, dict[str, float]]:
    """Both empty where the plugin lacks the function: then whoever loads the file compiles."""
    try:
        serialized = bytes(executable.serialize())
    except RuntimeError as error:
        if "UNIMPLEMENTED" not in str(error):
            raise
        serialized = b""
    try:
        return serialized, dict(executable.cost_analysis())
    except RuntimeError:
        return serialized, {}


def _dumped(spec: Any) -> str:
    try:
        return pytree.treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ExportError(
            f"its arguments or results cannot be described in a file: {error}"
        ) from error


def _write(path: Path, write: Callable[[Any], Any]) -> None:
    """Write beside ``path`` and rename: what stands there is whole at any time."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
