"""A captured graph as a callable: the core runs it, Python only finds programs for new signatures."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torchneuron import _C
from torchneuron.compile import failure, rng_state, stages
from torchneuron.compile.captured import CapturedGraph
from torchneuron.compile.options import Options
from torchneuron.compile.specialize import Specialization
from torchneuron.program.compiler import Program
from torchneuron.program.session import compile_flags, compiler, toolchain

_DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_numbers = itertools.count()


@dataclass(frozen=True)
class Built:
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
        self._eager: failure.EagerGraph | None = None
        self.compile_id = stages.current_compile_id()
        start = time.perf_counter()
        rng_state.correct_states(gm)
        self.captured = CapturedGraph(gm)
        stages.tell_capture(self.name, kind, self.captured, start, self.compile_id)
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
        except failure.REFUSALS as error:
            if self.options.fallback != "eager":
                failure.advise(error, self.name)
                raise
            stages.tell("refuse", self.name, 0.0, self.compile_id, reason=str(error))
            if self._eager is None:
                self._eager = failure.EagerGraph(self.name, self._gm.forward, error)
            return {"kind": "eager"}

    def _plan(
        self,
        args: tuple[Any, ...],
        tensors: Sequence[_C.TensorDescription],
        scalars: Sequence[_C.ScalarDescription],
        key: bytes,
        device: int,
    ) -> dict[str, Any]:
        program = self.program(
            key, device, describe(args, tensors), lambda: self.lower(args, tensors, scalars)
        )
        return core_plan(self.name, program.executable, program.metadata)

    def lower(
        self,
        args: tuple[Any, ...],
        tensors: Sequence[_C.TensorDescription],
        scalars: Sequence[_C.ScalarDescription],
    ) -> Built:
        """The program for the arguments of one call. Raises LoweringError."""
        from torchneuron.lowering.lower import lower
        from torchneuron.program.dump import stablehlo_text

        start = time.perf_counter()
        special = Specialization(self.captured, args, tensors, scalars)
        lowered = lower(self.captured.module, special.spec)
        size = len(lowered.module)
        stages.tell(
            "lower",
            self.name,
            time.perf_counter() - start,
            self.compile_id,
            text=lambda: stablehlo_text(lowered.module),
            arguments=describe(args, tensors),
            stablehlo_bytes=size,
            roads=lowered.roads,
        )
        plan = special.plan(random=bool(lowered.rng_offset))
        metadata = {"plan": plan, "stablehlo_bytes": size}
        return Built(lowered.module, lowered.rng_offset, lowered.roads, metadata)

    def program(
        self, key: bytes, device: int, arguments: str, lower: Callable[[], Built]
    ) -> Program:
        """The program for the signature ``key`` on ``device``; ``lower`` is called if there is none.

        ``arguments`` describes them to people.
        """
        start = time.perf_counter()
        signature = self.captured.digest.encode() + b"\0" + key
        program = compiler().compile_program(
            toolchain().parts(signature),
            lower,
            {},
            _C.ordinal(device),
            op=self.name,
            signature=arguments,
            graph=lambda: str(self.captured.module.graph),
            flags=compile_flags(),
        )
        stages.tell_program(self.name, program, arguments, start, self.compile_id)
        return program

    def _run_eagerly(self, args: list[Any]) -> Sequence[Any]:
        assert self._eager is not None, "only a graph that was refused runs eagerly"
        return self._eager(args)


def core_plan(name: str, executable: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    """A program and the metadata it is kept with, as the core's ``plan_from`` reads them."""
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


def describe(args: Sequence[Any], tensors: Sequence[_C.TensorDescription]) -> str:
    """The arguments, as the metrics show them."""

    def one(argument: Any) -> str:
        if not isinstance(argument, _C.TensorArgument):
            return str(argument)
        tensor = tensors[argument.index]
        return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.sizes)}"

    return ", ".join(one(argument) for argument in args)
