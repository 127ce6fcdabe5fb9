"""``torch.neuron.load_exported``: an exported program from its file, without the model's code."""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchneuron import _C
from torchneuron.compile import export, exported
from torchneuron.compile.captured import DEVICE
from torchneuron.compile.compiled import CompiledGraph, core_plan, describe
from torchneuron.compile.dimensions import Bound, Dimensions
from torchneuron.compile.exported import ExportError
from torchneuron.compile.options import Options
from torchneuron.program import safetensors
from torchneuron.program.errors import NeffError
from torchneuron.program.metrics import METRICS
from torchneuron.program.neff import Neff
from torchneuron.program.session import compile_flags, compiler, toolchain


def load_exported(path: str | os.PathLike[str], device: torch.types.Device = None) -> ExportedModel:
    """An exported program as a callable; the model's Python code is not needed.

    ``device`` is a neuron device, by default the current one. The weights go there at once. The
    program in the file is loaded where it fits the plugin and the processor it was compiled for, and
    else compiled from the file's StableHLO.

    Raises NeffError for a file that is no NEFF, torn or altered; ExportError for one that holds no
    exported program, or was written by another version; FileNotFoundError.

        model = torch.neuron.load_exported("model.neff")
        logits = model(torch.randn(8, 3, 224, 224, device="neuron"))
    """
    return ExportedModel(read(path), _index(device), Path(path).name)


def read(path: str | os.PathLike[str]) -> Neff:
    """The contents of an exported program's file; weights stay in the file until they are used."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # Of a private mapping tensors can be made; nobody writes into it.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else b""
    try:
        neff = Neff.from_bytes(memoryview(data))
    except NeffError as error:
        raise NeffError(f"{os.fspath(path)}: {error}") from error
    if neff.interface.get("kind") != export.KIND:
        raise ExportError(f"{os.fspath(path)} is a cached program, not an exported one")
    if neff.interface["format"] != export.FORMAT:
        raise ExportError(
            f"{os.fspath(path)} was written by another version of torchneuron (format "
            f"{neff.interface['format']}, not {export.FORMAT}): export the program again"
        )
    return neff


def _index(device: torch.types.Device) -> int:
    chosen = torch.device(DEVICE if device is None else device)
    if chosen.type != DEVICE:
        raise ExportError(f"an exported program runs on {DEVICE}, not on {chosen}")
    return int(_C.current_device() if chosen.index is None else chosen.index)


class ExportedModel:
    """An exported program on a device.

    A call takes the arguments of the original, in the same structure, with tensors on the device;
    it gives what the original gave and updates its buffers and the arguments that it changes. It
    records nothing for autograd.
    """

    def __init__(self, neff: Neff, device: int, name: str) -> None:
        """Moves the weights of ``neff`` to the device of this index."""
        self.name = name
        self.interface: Mapping[str, Any] = neff.interface
        self.device = torch.device(DEVICE, device)
        self._stablehlo = neff.stablehlo
        self._executable = neff.executable
        self._metadata = dict(neff.metadata)
        self._saved = bytes(_member(neff, export.GRAPH))
        self._state = _on_device(neff, self.device)
        self._in_spec = _loaded(self.interface["in_spec"])
        self._out_spec = _loaded(self.interface["out_spec"])
        self._dimensions = Dimensions(self.interface["symbols"], self.interface["inputs"])
        numbers = [False] * len(self.interface["arguments"])
        self._run = _C.Graph(name, device, numbers, 256, self._resolve, _refuse_eager)

    def __repr__(self) -> str:
        """The file and the device."""
        return f"<exported program {self.name} on {self.device}>"

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The parameters, buffers and constants by name: the tensors themselves, on the device."""
        return {
            item["name"]: self._state[item["tensor"]]
            for item in self.interface["arguments"]
            if item["kind"] != "input"
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. Raises ExportError for arguments that it does not take, by name."""
        leaves = self._flatten(args, kwargs)
        bound = self._dimensions.bind(leaves)
        with torch.no_grad():
            placed = [
                self._placed(item, leaf, bound)
                for item, leaf in zip(self.interface["inputs"], leaves, strict=True)
            ]
            given = self._run(
                [
                    placed[item["index"]]
                    if item["kind"] == "input"
                    else self._state[item["tensor"]]
                    for item in self.interface["arguments"]
                ]
            )
            for item, leaf, used in zip(self.interface["inputs"], leaves, placed, strict=True):
                if item.get("mutated") and used is not leaf:
                    leaf.copy_(used)
        results = [
            given[item["index"]] if item["kind"] == "result" else item["value"]
            for item in self.interface["results"]
        ]
        return pytree.tree_unflatten(results, self._out_spec)

    # Arguments

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        names = self._in_spec.child(1).context
        if set(kwargs) == set(names):
            kwargs = {name: kwargs[name] for name in names}
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            names = [item["name"] for item in self.interface["inputs"]]
            raise ExportError(
                f"the arguments are {pytree.tree_unflatten(['*'] * len(leaves), spec)}, the "
                f"program takes {pytree.tree_unflatten(names, self._in_spec)}"
            )
        return leaves

    def _placed(self, item: Mapping[str, Any], leaf: Any, bound: Bound) -> Any:
        """The leaf in the layout that the program was traced with."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.device != self.device:
            raise ExportError(
                f"input {item['name']} is on {leaf.device}, the program on {self.device}"
            )
        sizes, strides = self._dimensions.layout(item, bound)
        if list(leaf.stride()) == strides:
            return leaf
        return torch.empty_strided(sizes, strides, dtype=leaf.dtype, device=leaf.device).copy_(leaf)

    # Programs

    def _resolve(
        self,
        args: tuple[Any, ...],
        tensors: Sequence[_C.TensorDescription],
        scalars: Sequence[_C.ScalarDescription],
        key: bytes,
        device: int,
    ) -> dict[str, Any]:
        """The plan for a signature: that of the file, or one made from the file's graph."""
        if key.hex() == self.interface["key"]:
            executable = self._load(device, describe(args, tensors))
            return core_plan(self.name, executable, self._metadata)
        graph = self._graph
        program = graph.program(
            key, device, describe(args, tensors), lambda: graph.lower(args, tensors, scalars)
        )
        return core_plan(self.name, program.executable, program.metadata)

    def _load(self, device: int, arguments: str) -> Any:
        if self._executable and self.interface["machine"] == export.machine():
            start = time.perf_counter()
            try:
                executable = _C.client().deserialize(self._executable, _C.ordinal(device))
            except RuntimeError:
                pass  # A plugin that no longer knows its own: compile.
            else:
                seconds = time.perf_counter() - start
                METRICS.add("load_seconds", seconds)
                METRICS.record_program(self.name, arguments, seconds, "disk")
                return executable
        digest = hashlib.sha256(self._stablehlo).digest()
        return (
            compiler()
            .compile_program(
                toolchain().parts(b"exported\0" + digest),
                self._stablehlo,
                self._metadata,
                _C.ordinal(device),
                op=self.name,
                signature=arguments,
                flags=compile_flags(),
            )
            .executable
        )

    @cached_property
    def _graph(self) -> CompiledGraph:
        program = torch.export.load(io.BytesIO(self._saved))
        graph = exported.on_device(program, self.device.index)
        return CompiledGraph(graph, "exported", Options())


def _member(neff: Neff, name: str) -> memoryview:
    member = neff.members.get(name)
    if not isinstance(member, memoryview):
        raise ExportError(f"the file has no member {name}")
    return member


def _on_device(neff: Neff, device: torch.device) -> dict[str, torch.Tensor]:
    held = safetensors.read(_member(neff, export.WEIGHTS))
    placed = {}
    for name, item in neff.interface["state"].items():
        dtype = getattr(torch, item["dtype"])
        tensor = torch.empty_strided(item["sizes"], item["strides"], dtype=dtype, device=device)
        placed[name] = tensor.copy_(held[name])
    return placed


def _loaded(text: str) -> Any:
    try:
        return pytree.treespec_loads(text)
    except (NotImplementedError, KeyError, ValueError) as error:
        raise ExportError(
            f"its arguments or results are of a type that must be imported first: {error}"
        ) from error


def _refuse_eager(args: list[Any]) -> Any:
    raise AssertionError("an exported program never runs operation by operation")
