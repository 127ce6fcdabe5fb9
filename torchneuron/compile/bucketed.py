"""``options={"buckets": ...}``: a symbolic graph runs at a few sizes, its arguments padded up to the next.

Only for symbols of which ``padding.Proof`` shows that the rows padded in never reach the others; all
else runs at its own size. Arguments are padded with zeros, results are cut back.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from torchneuron.compile import stages
from torchneuron.compile.captured import CapturedGraph
from torchneuron.compile.layout import laid_out
from torchneuron.compile.options import Buckets
from torchneuron.compile.options import Sizes as BucketSizes
from torchneuron.compile.padding import Layout, Proof, Unproven, expression
from torchneuron.program.metrics import METRICS

Call = Callable[[list[Any]], Any]
Sizes = dict[Any, sympy.Integer]


class BucketedGraph:
    """A graph, one size of whose arguments is padded to a bucket before it runs."""

    # AOTAutograd's mark of a callable that takes one list and may empty it.
    _boxed_call = True

    def __init__(self, run: Call, graph: CapturedGraph, padding: Padding) -> None:
        """``run`` is the graph at any size."""
        self._run = run
        self._padding = padding
        self._symbols = [
            (size, position, dim)
            for position, dim, size in _argument_sizes(graph)
            if isinstance(size, sympy.Symbol)
        ]
        (output,) = graph.placeholders[0].graph.find_nodes(op="output")
        self._arguments = [padding.layout(node) for node in graph.placeholders]
        self._results = [(padding.layout(node), node) for node in output.args[0]]

    def __call__(self, args: list[Any]) -> Any:
        """The graph's results for its arguments."""
        sizes = {
            symbol: sympy.Integer(args[position].shape[dim])
            for symbol, position, dim in self._symbols
        }
        symbol = self._padding.symbol
        real = int(sizes[symbol])
        padded = self._padding.bucket(sizes)
        if real == padded:
            return self._run(args)
        METRICS.add("padded_calls")
        given = [
            _grown(arg, layout, symbol, padded) if layout else arg
            for arg, layout in zip(args, self._arguments, strict=True)
        ]
        for position in self._padding.numbers:
            given[position] = padded
        args.clear()
        grown = {**sizes, symbol: sympy.Integer(padded)}
        return [
            laid_out(_cut(result, layout, grown, symbol, real), node.meta["val"], sizes)
            if layout
            else result
            for result, (layout, node) in zip(self._run(given), self._results, strict=True)
        ]


@dataclass(frozen=True)
class Padding:
    """How one symbol is padded: the arguments that are the size itself, and to what it may grow."""

    symbol: sympy.Symbol
    proof: Proof
    numbers: Sequence[int]
    buckets: BucketSizes
    allowed: Callable[[Sizes], bool]

    def layout(self, node: Any) -> Layout:
        """The factors of each dimension of a value; empty where none is padded."""
        return self.proof.layouts[node] if _has_padding(self.proof, node) else ()

    def bucket(self, sizes: Sizes) -> int:
        """The size to run at; its own where no bucket holds it, or the graph was not traced for it."""
        size = int(sizes[self.symbol])
        chosen = self._next(size)
        grown = {**sizes, self.symbol: sympy.Integer(chosen)}
        return chosen if self.allowed(grown) else size

    def _next(self, size: int) -> int:
        if self.buckets == "powers_of_two":
            return 1 << (size - 1).bit_length()
        place = bisect_left(self.buckets, size)
        return self.buckets[place] if place < len(self.buckets) else size


def bucketed(
    name: str, run: Call, gm: fx.GraphModule, graph: CapturedGraph, buckets: Buckets
) -> Call:
    """``run`` with its arguments padded, one symbol after the other; tells which, or why not."""
    for symbol, sizes in _choose(graph, buckets).items():
        refused = ""
        try:
            run = BucketedGraph(run, graph, _padding(gm, graph, symbol, sizes))
        except Unproven as error:
            refused = str(error)
        compile_id = stages.current_compile_id()
        stages.tell("pad", name, 0.0, compile_id, symbol=str(symbol), refused=refused)
    return run


def _choose(graph: CapturedGraph, buckets: Buckets) -> dict[sympy.Symbol, BucketSizes]:
    """The symbols that are the size of a dimension that has buckets."""
    found: dict[sympy.Symbol, BucketSizes] = {}
    for wanted, sizes in buckets:
        for _, dim, size in _argument_sizes(graph):
            if isinstance(size, sympy.Symbol) and wanted in (None, dim):
                found.setdefault(size, sizes)
    return found


def _argument_sizes(graph: CapturedGraph) -> Iterator[tuple[int, int, Any]]:
    for position, node in enumerate(graph.placeholders):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                yield position, dim, expression(size)


def _padding(
    gm: fx.GraphModule, graph: CapturedGraph, symbol: sympy.Symbol, buckets: BucketSizes
) -> Padding:
    """Raises Unproven."""
    proof = Proof(gm.graph, symbol)
    _require_own_results(graph, proof)
    numbers = [i for i, node in enumerate(graph.placeholders) if _is_number(node, symbol)]
    return Padding(symbol, proof, numbers, buckets, _guard(graph, symbol))


def _is_number(node: fx.Node, symbol: sympy.Symbol) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.SymInt) and value.node.expr == symbol


def _require_own_results(graph: CapturedGraph, proof: Proof) -> None:
    """No padded argument is written or given back, no two padded results share memory, and no result
    is a number made of the size.
    """
    for mutation in graph.mutations:
        if _has_padding(proof, graph.placeholders[mutation.position]):
            raise Unproven("a padded argument is written")
    (output,) = graph.placeholders[0].graph.find_nodes(op="output")
    outputs = []
    for result, node in zip(graph.results, output.args[0], strict=True):
        if result.source == "argument" and _has_padding(proof, graph.placeholders[result.index]):
            raise Unproven("a padded argument is given back")
        if result.source == "constant" and proof.depends(result.value):
            raise Unproven("the size itself is a result")
        if result.source == "output" and _has_padding(proof, node):
            outputs.append(result.index)
    if len(outputs) != len(set(outputs)):
        raise Unproven("two results share memory")


def _has_padding(proof: Proof, node: Any) -> bool:
    layout = proof.layouts.get(node)
    return isinstance(layout, tuple) and any(map(proof.is_padded, layout))


def _guard(graph: CapturedGraph, symbol: sympy.Symbol) -> Callable[[Sizes], bool]:
    """Whether the graph, as it was traced, holds for given sizes: TorchDynamo's guards on the symbol."""
    env = _shape_env(graph)
    known = env.var_to_range[symbol]
    # TorchDynamo notes a guard in the symbols of its time, some of which have become others since.
    guards = [
        guard for noted in env.guards if symbol in (guard := env.replace(noted.expr)).free_symbols
    ]

    def allowed(sizes: Sizes) -> bool:
        return bool(known.lower <= sizes[symbol] <= known.upper) and all(
            guard.xreplace(sizes) == sympy.true for guard in guards
        )

    return allowed


def _shape_env(graph: CapturedGraph) -> Any:
    for node in graph.placeholders:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    raise Unproven("no argument has the size")


# Padding and cutting


def _grown(tensor: torch.Tensor, layout: Layout, symbol: sympy.Symbol, padded: int) -> torch.Tensor:
    """The tensor with zeros after its rows; a dimension of an argument has one factor."""
    ends = [
        padded - size if dim == (symbol,) else 0
        for dim, size in zip(layout, tensor.shape, strict=True)
    ]
    widths = [width for end in reversed(ends) for width in (0, end)]
    return torch.nn.functional.pad(tensor, widths)


def _cut(
    tensor: torch.Tensor, layout: Layout, sizes: Sizes, symbol: sympy.Symbol, real: int
) -> torch.Tensor:
    """The wanted rows of a result."""
    factors = [factor for dim in layout for factor in dim]
    apart = tensor.reshape([int(factor.xreplace(sizes)) for factor in factors])
    for place, factor in enumerate(factors):
        if factor == symbol:
            apart = apart.narrow(place, 0, real)
    wanted = {**sizes, symbol: sympy.Integer(real)}
    return apart.reshape(
        [math.prod(int(factor.xreplace(wanted)) for factor in dim) for dim in layout]
    )
