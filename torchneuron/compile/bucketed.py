"""``options={"buckets": ...}``: a symbolic graph runs at a few sizes, its arguments padded up to the next.

Only for symbols of which ``padding.prove`` shows that the rows padded in never reach the others; all
else runs at its own size. Arguments are padded with zeros, results are cut back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from torchneuron.compile import stages
from torchneuron.compile.bucket_plan import (
    BucketPlan,
    Given,
    Padding,
    argument_sizes,
    padding_of,
    plan_of,
)
from torchneuron.compile.captured import CapturedGraph
from torchneuron.compile.compiled import CompiledGraph, SavedGraph
from torchneuron.compile.masks import MaskedGraph
from torchneuron.compile.options import Buckets, Options
from torchneuron.compile.options import Sizes as BucketSizes
from torchneuron.compile.padding import prove
from torchneuron.compile.proving import Layout, Unproven
from torchneuron.compile.regrown import Sizes, cut, evaluate, grown, placed
from torchneuron.program.metrics import METRICS

# The sizes of dimensions that are padded where they can be.
Chosen = dict[sympy.Symbol, BucketSizes]


@dataclass(frozen=True)
class SavedBuckets:
    """A bucketed graph as it is kept between processes."""

    exact: SavedGraph
    padded: SavedGraph
    plan: BucketPlan

    def restore(self) -> BucketedGraph:
        """The graph; nothing is read or compiled before a call needs it."""
        return BucketedGraph(self.exact.restore(), self.padded.restore(), self.plan)


class BucketedGraph:
    """A graph, some sizes of whose arguments are padded to buckets before it runs."""

    # AOTAutograd's mark of a callable that takes one list and may empty it.
    _boxed_call = True

    def __init__(self, exact: CompiledGraph, padded: CompiledGraph, plan: BucketPlan) -> None:
        """``exact`` is the graph itself, ``padded`` its masked one, which gives the outputs alone."""
        self._exact = exact
        self._padded = padded
        self._plan = plan

    @property
    def runner(self) -> Any:
        """What AOTAutograd calls."""
        return self

    def save(self) -> SavedBuckets:
        """The graph in a form that pickle can keep."""
        return SavedBuckets(self._exact.save(), self._padded.save(), self._plan)

    def __call__(self, args: list[Any]) -> Any:
        """The graph's results for its arguments."""
        sizes = self._plan.sizes(args)
        larger = self._plan.grown(sizes)
        if larger is None:
            return self._exact.runner(args)
        given = self._grow(args, sizes, larger)
        kept = {x.index: args[x.index] for x in self._plan.results if x.source == "argument"}
        args.clear()
        outputs = self._cut(self._padded.runner(given), sizes, larger)
        return [_result(result, outputs, kept, sizes) for result in self._plan.results]

    def _grow(self, args: Sequence[Any], sizes: Sizes, larger: Sizes) -> list[Any]:
        plan = self._plan
        for padding in plan.paddings:
            if larger[padding.symbol] != sizes[padding.symbol]:
                METRICS.add("padded_calls")
        where = [(padding.symbol, padding.arguments) for padding in plan.paddings]
        # As the graph was told that they lie, so that all sizes have one program.
        given = _resized(args, where, grown, sizes, larger, plan.laid)
        for place, number in plan.numbers:
            given[place] = evaluate(number, larger)
        reals = [(evaluate(number, sizes), dtype) for number, dtype in plan.operands]
        return given + [torch.tensor(number, dtype=dtype) for number, dtype in reals]

    def _cut(self, outputs: Sequence[Any], sizes: Sizes, larger: Sizes) -> list[Any]:
        where = [(padding.symbol, padding.outputs) for padding in reversed(self._plan.paddings)]
        return _resized(outputs, where, cut, larger, sizes, dict(enumerate(self._plan.strides)))


def _resized(
    tensors: Sequence[Any],
    where: Sequence[tuple[sympy.Symbol, Sequence[tuple[int, Layout]]]],
    resize: Callable[[torch.Tensor, Layout, Any, Sizes, int], torch.Tensor],
    sizes: Sizes,
    wanted: Sizes,
    strides: Mapping[int, Sequence[Any]],
) -> list[Any]:
    """Tensors of some sizes as those of others, one symbol after the other, with the strides there."""
    found, now, changed = list(tensors), dict(sizes), set()
    for symbol, places in where:
        if wanted[symbol] != now[symbol]:
            for place, layout in places:
                found[place] = resize(found[place], layout, symbol, now, int(wanted[symbol]))
                changed.add(place)
            now[symbol] = wanted[symbol]
    for place in changed:
        laid = [evaluate(stride, wanted) for stride in strides[place]]
        found[place] = placed(found[place], laid, tensors[place].device)
    return found


def _result(
    result: Given, outputs: Sequence[torch.Tensor], arguments: dict[int, Any], sizes: Sizes
) -> Any:
    if result.source == "number":
        known = isinstance(result.value, sympy.Basic)
        return evaluate(result.value, sizes) if known else result.value
    base = outputs[result.index] if result.source == "output" else arguments[result.index]
    if result.view is None:
        return base
    shape, strides = ([evaluate(number, sizes) for number in part] for part in result.view[:2])
    offset = base.storage_offset() + evaluate(result.view[2], sizes)
    return torch.as_strided(base, shape, strides, offset)


def bucketed(
    exact: CompiledGraph, gm: fx.GraphModule, kind: str, options: Options, chosen: Chosen
) -> CompiledGraph | BucketedGraph:
    """``exact``, run at a few sizes where that is proven; tells for which symbols, or why not.

    ``chosen`` are the symbols that the forward graph pads, from which a backward graph knows what its
    arguments' sizes are; any other graph adds its own.
    """
    graph = exact.captured
    if kind != "backward":
        chosen.update(_choose(graph, options.buckets))
    outputs: Sequence[fx.Node] = graph.outputs[: graph.fresh]
    paddings: list[Padding] = []
    operands: list[Any] = []
    for symbol, sizes in chosen.items():
        refused = ""
        try:
            proof = prove(gm.graph, symbol)
            arguments = gm.graph.find_nodes(op="placeholder")
            padding = padding_of(proof, graph, arguments, outputs, sizes)
            masked = MaskedGraph(gm, proof, outputs)
            plan = plan_of(graph, [*paddings, padding], [*operands, *masked.operands])
        except Unproven as error:
            refused = str(error)
        else:
            gm, outputs = masked.module, masked.outputs
            paddings.append(padding)
            operands += masked.operands
        compile_id = stages.current_compile_id()
        stages.tell("pad", exact.name, 0.0, compile_id, symbol=str(symbol), refused=refused)
    return BucketedGraph(exact, CompiledGraph(gm, kind, options), plan) if paddings else exact


def _choose(graph: CapturedGraph, buckets: Buckets) -> Chosen:
    """The symbols that are the size of a dimension that has buckets."""
    found: Chosen = {}
    for wanted, sizes in buckets:
        for _, dim, size in argument_sizes(graph):
            if isinstance(size, sympy.Symbol) and wanted in (None, dim):
                found.setdefault(size, sizes)
    return found
