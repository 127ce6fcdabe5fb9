"""A captured graph as a callable: the core runs it, Python only finds programs for new signatures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torchneuron import _C
from torchneuron.compile.captured import CapturedGraph
from torchneuron.compile.options import Options
from torchneuron.compile.specialize import Specialization
from torchneuron.lowering.errors import LoweringError
from torchneuron.program.session import compile_flags, compiler, toolchain

_DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_numbers = itertools.count()


@dataclass(frozen=True)
class _Built:
    """A lowered specialisation, as the compiler wants it."""

    module: bytes
    rng_offset: int
    roads: dict[str, str]
    metadata: dict[str, Any]


class CompiledGraph:
    """One graph of AOTAutograd's: forward, backward or inference.

    ``runner`` is what AOTAutograd calls, with one list of arguments.
    """

    def __init__(self, gm: fx.GraphModule, kind: str, options: Options) -> None:
        """Analyse the graph; nothing is compiled before the first call tells the storages."""
        self.name = f"graph {next(_numbers)} {kind}"
        self.options = options
        self._gm = gm
        self.captured = CapturedGraph(gm)
        self.runner = _C.Graph(
            self.name,
            self.captured.device or 0,
            [_is_float(node) for node in self.captured.placeholders],
            options.programs,
            self._resolve,
            self._run_eagerly,
        )
        # AOTAutograd's mark of a callable that takes one list and may empty it.
        self.runner._boxed_call = True

    def _resolve(
        self,
        args: tuple[Any, ...],
        tensors: Sequence[_C.TensorDescription],
        scalars: Sequence[_C.ScalarDescription],
        key: bytes,
        device: int,
    ) -> dict[str, Any]:
        """The plan for a signature, as the core's ``plan_from`` reads it."""
        try:
            return self._plan(args, tensors, scalars, key, device)
        except LoweringError as error:
            if self.options.fallback == "eager":
                return {"kind": "eager"}
            error.add_note(
                f"This is {self.name}. torch.compile(..., options={{'fallback': 'eager'}}) runs a "
                "graph that cannot be lowered operation by operation."
            )
            raise

    def _plan(
        self,
        args: tuple[Any, ...],
        tensors: Sequence[_C.TensorDescription],
        scalars: Sequence[_C.ScalarDescription],
        key: bytes,
        device: int,
    ) -> dict[str, Any]:
        def lower() -> _Built:
            from torchneuron.lowering.lower import lower

            special = Specialization(self.captured, args, tensors, scalars)
            lowered = lower(self.captured.module, special.spec)
            plan = special.plan(random=bool(lowered.rng_offset))
            return _Built(lowered.module, lowered.rng_offset, lowered.roads, {"plan": plan})

        signature = self.captured.digest.encode() + b"\0" + key
        program = compiler().compile_program(
            toolchain().parts(signature),
            lower,
            {},
            _C.ordinal(device),
            op=self.name,
            signature=_describe(args, tensors),
            graph=lambda: str(self.captured.module.graph),
            flags=compile_flags(),
        )
        return _core_plan(self.name, program.executable, program.metadata)

    def _run_eagerly(self, args: list[Any]) -> Sequence[Any]:
        results = self._gm(*args)
        return results if isinstance(results, (tuple, list)) else (results,)


def _core_plan(name: str, executable: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    plan: dict[str, Any] = metadata["plan"]
    return {
        "kind": "program",
        "executable": executable,
        "label": name,
        "origin": "",
        "operands": [tuple(item) for item in plan["operands"]],
        "outputs": [_typed(item) for item in plan["outputs"]],
        "results": [
            {**item, "view": _typed(item["view"])} if item.get("view") else item
            for item in plan["results"]
        ],
        "host_writes": [tuple(pair) for pair in plan["host_writes"]],
        "donatable": plan["donatable"],
        "rng_offset": metadata["rng_offset"],
    }


def _typed(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "dtype": _DTYPES[item["dtype"]]}


def _is_float(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (float, torch.SymFloat))


def _describe(args: Sequence[Any], tensors: Sequence[_C.TensorDescription]) -> str:
    """The arguments, as the metrics show them."""

    def one(argument: Any) -> str:
        if not isinstance(argument, _C.TensorArgument):
            return str(argument)
        tensor = tensors[argument.index]
        return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.sizes)}"

    return ", ".join(one(argument) for argument in args)
