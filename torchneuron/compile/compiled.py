"""A captured graph as a callable: the core runs it, Python only finds programs for new signatures."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from torchneuron import _C, _artifacts
from torchneuron.compile import failure, rng_state, stages
from torchneuron.compile.captured import CapturedGraph
from torchneuron.compile.options import MANY_PROGRAMS, Options
from torchneuron.compile.specialize import Specialization
from torchneuron.lowering.dtypes import from_text
from torchneuron.program.compiler import Program
from torchneuron.program.key import digest, sources_version
from torchneuron.program.session import compile_flags, compiler, flags_of, toolchain

_numbers = itertools.count()
# Of a node's metadata: what it gives, and where it came from.
_KEPT_METADATA = frozenset({"val", "stack_trace"})


@dataclass(frozen=True)
class Built:
    """A lowered specialisation, as the compiler wants it."""

    module: bytes
    rng_offset: int
    roads: dict[str, str]
    metadata: dict[str, Any]
    flags: dict[str, str]


@dataclass(frozen=True)
class SavedGraph:
    """A compiled graph as it is kept between processes; ``nodes`` is the pickled graph."""

    kind: str
    options: Options
    digest: str
    device: int
    number_operands: list[bool]
    nodes: bytes
    sources: str

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Raises RuntimeError for a graph that another version of this package kept.

        AOTAutogradCache never finds one, as its keys name the version; others of PyTorch's caches
        go by the user's code alone, and trace again if an entry cannot be read.
        """
        if state.get("sources") != sources_version():
            raise RuntimeError("the graph was kept by another version of torchneuron")
        self.__dict__.update(state)

    def restore(self) -> CompiledGraph:
        """The graph; its nodes are read when a program must be lowered."""
        return CompiledGraph.restore(self)


class CompiledGraph:
    """One graph of AOTAutograd's: forward, backward or inference.

    ``runner`` is what AOTAutograd calls, with one list of arguments; so can the graph itself be.
    """

    # AOTAutograd's mark of a callable that takes one list and may empty it.
    _boxed_call = True

    def __init__(self, gm: fx.GraphModule, kind: str, options: Options) -> None:
        """Analyse the graph; nothing is compiled before the first call tells the storages."""
        start = time.perf_counter()
        rng_state.correct_states(gm)
        captured = CapturedGraph(gm)
        self._gm: fx.GraphModule | None = gm
        self._captured: CapturedGraph | None = captured
        self._begin(
            SavedGraph(
                kind,
                options,
                captured.digest,
                captured.device or 0,
                [_is_float(node) for node in captured.placeholders],
                b"",
                sources_version(),
            )
        )
        stages.tell_capture(self.name, kind, captured, start, self.compile_id)

    def _begin(self, saved: SavedGraph) -> None:
        self._saved = saved
        self.options = saved.options
        self.name = f"graph {next(_numbers)} {saved.kind}"
        self.compile_id = stages.current_compile_id()
        self._eager: failure.EagerGraph | None = None
        self.runner = _C.Graph(
            self.name,
            saved.device,
            saved.number_operands,
            saved.options.programs,
            self._resolve,
            self._run_eagerly,
        )
        self.runner._boxed_call = True

    def __call__(self, args: list[Any]) -> list[Any]:
        """The graph's results."""
        return self.runner(args)

    @classmethod
    def restore(cls, saved: SavedGraph) -> CompiledGraph:
        """The graph that ``save`` wrote down; its nodes are read when a program must be lowered."""
        graph = cls.__new__(cls)
        graph._gm = graph._captured = None
        graph._begin(saved)
        return graph

    def save(self) -> SavedGraph:
        """The graph in a form that pickle can keep."""
        if self._gm is None:
            return self._saved
        from torch.fx._graph_pickler import GraphPickler
        from torch.fx._graph_pickler import Options as PickleOptions

        kept = PickleOptions(ops_filter=None, node_metadata_key_filter=_KEPT_METADATA.__contains__)
        nodes = GraphPickler.dumps(self.captured.without_inferable(self._gm), kept)
        return replace(self._saved, nodes=nodes)

    def _module(self) -> fx.GraphModule:
        if self._gm is None:
            from torch._subclasses.fake_tensor import FakeTensorMode
            from torch.fx._graph_pickler import GraphPickler
            from torch.fx.experimental.symbolic_shapes import ShapeEnv

            fake_mode = FakeTensorMode(shape_env=ShapeEnv())
            gm = GraphPickler.loads(self._saved.nodes, fake_mode)
            assert isinstance(gm, fx.GraphModule)
            self._gm = gm
        return self._gm

    @property
    def captured(self) -> CapturedGraph:
        """What the graph says about itself."""
        if self._captured is None:
            self._captured = CapturedGraph(self._module())
            if self._captured.digest != self._saved.digest:
                raise RuntimeError(f"{self.name} is not the graph that was written to the cache")
        return self._captured

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
                self._eager = failure.EagerGraph(self.name, self._module().forward, error)
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
        if self.runner.programs + 1 == MANY_PROGRAMS:
            self._warn_of_many(tensors)
        return core_plan(self.name, program.executable, program.metadata)

    def _warn_of_many(self, tensors: Sequence[_C.TensorDescription]) -> None:
        """Say that the graph compiles for ever new shapes, and what would help."""
        latest = ", ".join(str(list(tensor.sizes)) for tensor in tensors[:4])
        warnings.warn(
            f"{self.name} has {MANY_PROGRAMS} programs by now, one for each combination of argument "
            f"shapes (the latest: {latest}), and each new one costs a compilation. Padding the "
            "dimension that varies to a few sizes, such as powers of two, makes them few; "
            f"options={{'programs': n}} bounds how many are kept (now {self.options.programs}).",
            UserWarning,
            stacklevel=2,
        )

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
        flags = flags_of(reduces_rows=lowered.reduces_rows)
        return Built(lowered.module, lowered.rng_offset, lowered.roads, metadata, flags)

    def program(
        self, key: bytes, device: int, arguments: str, lower: Callable[[], Built]
    ) -> Program:
        """The program for the signature ``key`` on ``device``; ``lower`` is called if there is none.

        ``arguments`` describes them to people.
        """
        start = time.perf_counter()
        signature = self._saved.digest.encode() + b"\0" + key
        parts = toolchain().parts(signature)
        program = compiler().compile_program(
            parts,
            lower,
            {},
            _C.ordinal(device),
            op=self.name,
            signature=arguments,
            graph=lambda: str(self.captured.module.graph),
            flags=compile_flags(),
        )
        if program.origin != "memory":
            _artifacts.record(compiler().cache, digest(parts))
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
    return {**item, "dtype": from_text(item["dtype"])}


def _is_float(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (float, torch.SymFloat))


def describe(args: Sequence[Any], tensors: Sequence[_C.TensorDescription]) -> str:
    """The arguments, as the metrics show them."""

    def one(argument: Any) -> str:
        if isinstance(argument, torch.SymInt):
            return "ragged"
        if not isinstance(argument, _C.TensorArgument):
            return str(argument)
        tensor = tensors[argument.index]
        return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.sizes)}"

    return ", ".join(one(argument) for argument in args)
