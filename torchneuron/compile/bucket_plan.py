"""How a call of a symbolic graph becomes one of a few sizes: what is padded, and what is given back.

All of it is numbers and expressions of sizes, so that it can be kept between processes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from torchneuron.compile.captured import CapturedGraph, Result
from torchneuron.compile.options import Sizes as BucketSizes
from torchneuron.compile.padding import Proof
from torchneuron.compile.proving import Layout, Unproven, expression, is_symbolic
from torchneuron.compile.regrown import Sizes


@dataclass(frozen=True)
class Padding:
    """How one symbol is padded: to what it may grow, and where it is in arguments and outputs.

    The graph was traced under ``guards`` and for sizes in ``limits``; a size of ``bounds`` must hold
    the padded one.
    """

    symbol: sympy.Symbol
    buckets: BucketSizes
    limits: tuple[Any, Any]
    guards: tuple[Any, ...] = ()
    bounds: tuple[Any, ...] = ()
    arguments: tuple[tuple[int, Layout], ...] = ()
    outputs: tuple[tuple[int, Layout], ...] = ()

    def bucket(self, sizes: Sizes) -> int | None:
        """The size to run at; None where no bucket holds it, or the graph was not traced for it."""
        chosen = self._next(int(sizes[self.symbol]))
        if chosen is None or not self.limits[0] <= chosen <= self.limits[1]:
            return None
        grown = {**sizes, self.symbol: sympy.Integer(chosen)}
        holds = all(chosen <= bound.xreplace(sizes) for bound in self.bounds)
        traced = all(guard.xreplace(grown) == sympy.true for guard in self.guards)
        return chosen if holds and traced else None

    def _next(self, size: int) -> int | None:
        if self.buckets == "powers_of_two":
            return 1 << (size - 1).bit_length()
        place = bisect_left(self.buckets, size)
        return self.buckets[place] if place < len(self.buckets) else None


@dataclass(frozen=True)
class Given:
    """One of the graph's results: an output or an argument, perhaps a view of it, or a number."""

    source: str
    index: int = 0
    value: Any = None
    view: tuple[tuple[Any, ...], tuple[Any, ...], Any] | None = None


@dataclass(frozen=True)
class BucketPlan:
    """``symbols`` tell which argument, and which of its dimensions, has a size, or is one (None).

    ``numbers`` are the arguments made of padded sizes; ``operands`` are the numbers made of real ones that
    the padded graph takes after its arguments; ``strides`` are those of its outputs, ``laid`` those of
    padded arguments.
    """

    symbols: tuple[tuple[sympy.Symbol, int, int | None], ...]
    paddings: tuple[Padding, ...]
    numbers: tuple[tuple[int, Any], ...]
    operands: tuple[tuple[Any, torch.dtype], ...]
    strides: tuple[tuple[Any, ...], ...]
    laid: dict[int, tuple[Any, ...]]
    results: tuple[Given, ...]

    def sizes(self, args: Sequence[Any]) -> dict[Any, sympy.Integer]:
        """What the symbols stand for in a call."""
        return {
            symbol: sympy.Integer(args[position] if dim is None else args[position].shape[dim])
            for symbol, position, dim in self.symbols
        }

    def grown(self, sizes: Sizes) -> dict[Any, sympy.Integer] | None:
        """The sizes to run at; None where no bucket holds any of the real ones."""
        chosen = {one.symbol: one.bucket(sizes) for one in self.paddings}
        found = {symbol: sympy.Integer(size) for symbol, size in chosen.items() if size is not None}
        return {**sizes, **found} if found else None


def symbols_of(graph: CapturedGraph) -> tuple[tuple[sympy.Symbol, int, int | None], ...]:
    """Where a call tells what each symbol stands for."""
    found: dict[sympy.Symbol, tuple[int, int | None]] = {}
    for position, dim, size in argument_sizes(graph):
        if isinstance(size, sympy.Symbol):
            found.setdefault(size, (position, dim))
    for position, node in enumerate(graph.placeholders):
        value = node.meta.get("val")
        # The ragged size of a nested tensor is no number.
        if not isinstance(value, torch.SymInt) or value.node.is_nested_int():
            continue
        if isinstance(value.node.expr, sympy.Symbol):
            found.setdefault(value.node.expr, (position, None))
    return tuple((symbol, *place) for symbol, place in found.items())


def argument_sizes(graph: CapturedGraph) -> Iterator[tuple[int, int, Any]]:
    """(argument, dimension, size) of each dimension of the graph's arguments."""
    for position, node in enumerate(graph.placeholders):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                yield position, dim, expression(size)


def padding_of(
    proof: Proof,
    graph: CapturedGraph,
    arguments: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    buckets: BucketSizes,
) -> Padding:
    """How the symbol of a proof is padded. Raises Unproven where results could not be cut back.

    ``arguments`` and ``outputs`` are those of the proof's graph, which may be a masked one of ``graph``.
    """

    def laid(nodes: Sequence[fx.Node]) -> tuple[tuple[int, Layout], ...]:
        layouts = [(i, proof.layouts[node]) for i, node in enumerate(nodes)]
        return tuple((i, x) for i, x in layouts if isinstance(x, tuple) and proof.padded(x))

    padded = dict(laid(arguments))
    if any(mutation.position in padded for mutation in graph.mutations):
        raise Unproven("a padded argument is written")
    env = _shape_env(graph)
    known = env.var_to_range[proof.symbol]
    # TorchDynamo notes a guard in the symbols of its time, some of which have become others since.
    guards = (env.replace(noted.expr) for noted in env.guards)
    return Padding(
        proof.symbol,
        buckets,
        (known.lower, known.upper),
        tuple(guard for guard in guards if proof.symbol in guard.free_symbols),
        tuple(proof.bounds),
        tuple(padded.items()),
        laid(outputs),
    )


def _shape_env(graph: CapturedGraph) -> Any:
    for node in graph.placeholders:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    raise Unproven("no argument has the size")


def plan_of(
    graph: CapturedGraph,
    paddings: Sequence[Padding],
    operands: Sequence[tuple[Any, torch.dtype]],
) -> BucketPlan:
    """The plan of a graph's calls. Raises Unproven where a call does not tell all that it takes."""
    padded = {padding.symbol for padding in paddings}
    numbers = [
        (position, expression(node.meta["val"]))
        for position, node in enumerate(graph.placeholders)
        if is_symbolic(node.meta.get("val"))
    ]
    outputs = [node.meta["val"] for node in graph.outputs[: graph.fresh]]
    plan = BucketPlan(
        symbols_of(graph),
        tuple(paddings),
        tuple((place, number) for place, number in numbers if number.free_symbols & padded),
        tuple(operands),
        tuple(map(_strides, outputs)),
        {
            place: _strides(graph.placeholders[place].meta["val"])
            for padding in paddings
            for place, _ in padding.arguments
        },
        tuple(_given(result, graph) for result in graph.results),
    )
    told = {symbol for symbol, _, _ in plan.symbols}
    if missing := _needed(plan) - told:
        raise Unproven(f"no argument tells {', '.join(map(str, missing))}")
    return plan


def _strides(value: torch.Tensor) -> tuple[Any, ...]:
    return tuple(map(expression, value.stride()))


def _given(result: Result, graph: CapturedGraph) -> Given:
    if result.source == "constant":
        value = expression(result.value) if is_symbolic(result.value) else result.value
        return Given("number", value=value)
    if result.view is None:
        return Given(result.source, result.index)
    nodes = graph.placeholders if result.source == "argument" else graph.outputs
    if nodes[result.index].meta["val"].dtype != result.view.dtype:
        raise Unproven("a result is a view as another dtype")
    sizes, strides = (tuple(map(expression, x)) for x in (result.view.sizes, result.view.strides))
    view = (sizes, strides, expression(result.view.offset))
    return Given(result.source, result.index, view=view)


def _needed(plan: BucketPlan) -> set[Any]:
    layouts = [
        factor
        for padding in plan.paddings
        for _, layout in (*padding.arguments, *padding.outputs)
        for dim in layout
        for factor in dim
    ]
    views = [n for x in plan.results if x.view is not None for part in x.view[:2] for n in part]
    offsets = [x.view[2] for x in plan.results if x.view is not None]
    values = [x.value for x in plan.results if isinstance(x.value, sympy.Basic)]
    numbers = [number for _, number in (*plan.numbers, *((0, n) for n, _ in plan.operands))]
    strides = [stride for one in (*plan.strides, *plan.laid.values()) for stride in one]
    every = (*layouts, *views, *offsets, *values, *numbers, *strides)
    return {symbol for number in every for symbol in number.free_symbols}
