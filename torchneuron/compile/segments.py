"""Graphs cut at the operations that run by themselves, into graphs of the usual kind.

A piece after one that finds a size is a symbolic graph that takes the size with its arguments, and
has a program for each.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torchneuron.compile import failure, stages
from torchneuron.compile.alone import Alone
from torchneuron.compile.layout import laid_out
from torchneuron.compile.stacked_loop import compile_loops
from torchneuron.eager.fallback import issued_from
from torchneuron.program.metrics import METRICS

Compile = Callable[[fx.GraphModule], Callable[..., Any]]


class SegmentedGraph:
    """A graph in pieces: some operations run by themselves, all others as ``compile_piece`` says."""

    # AOTAutograd's mark of a callable that takes one list and may empty it.
    _boxed_call = True

    def __init__(
        self,
        gm: fx.GraphModule,
        kind: str,
        alone: Mapping[fx.Node, Alone],
        compile_piece: Compile,
    ) -> None:
        """``alone`` says which nodes run by themselves; ``compile_piece`` makes a function of a graph,
        as a compiler that AOTAutograd calls.
        """
        from torch.fx.passes.split_module import split_module

        segments = _segments(gm.graph, alone)
        first: dict[str, Alone] = {}
        for node, number in segments.items():
            if node in alone:
                first.setdefault(f"submod_{number}", alone[node])
        whole = split_module(gm, gm, lambda node: segments[node], keep_original_order=True)
        for name, piece in list(whole.named_children()):
            assert isinstance(piece, fx.GraphModule)
            if name in first:
                compile_loops(piece, compile_piece)
                setattr(whole, name, _ByItself(piece, first[name]))
            elif not _only_python(piece):
                setattr(whole, name, _Piece(compile_piece(piece), _is_bare(piece)))
        self._forward = whole.forward
        _tell(kind, alone)

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """The graph's results for its arguments."""
        given = list(args)
        args.clear()
        results = self._forward(*given)
        return results if isinstance(results, (tuple, list)) else (results,)


def _tell(kind: str, alone: Mapping[fx.Node, Alone]) -> None:
    """Report each operation that the graph is cut at."""
    for node in alone.values():
        stages.tell(
            "cut",
            f"{kind} graph",
            0.0,
            stages.current_compile_id(),
            op=node.op,
            reason=node.reason,
            line=node.line,
        )


class _Piece(torch.nn.Module):
    """A compiled piece, called as the graph calls it: a single result comes bare."""

    def __init__(self, compiled: Callable[..., Any], bare: bool) -> None:
        super().__init__()
        self._compiled = compiled
        self._bare = bare

    def forward(self, *args: Any) -> Any:
        if not getattr(self._compiled, "_boxed_call", False):
            return self._compiled(*args)
        results = self._compiled(list(args))
        return results[0] if self._bare else list(results)


def _is_bare(piece: fx.GraphModule) -> bool:
    """Whether the piece gives one result and not a tuple."""
    (output,) = piece.graph.find_nodes(op="output")
    return isinstance(output.args[0], fx.Node)


class _ByItself(torch.nn.Module):
    """A piece that runs op by op, beginning with the operation ``alone``, whose line is theirs.

    Its results lie in memory as the capture says: the pieces after it take their views by that.
    """

    def __init__(self, piece: fx.GraphModule, alone: Alone) -> None:
        super().__init__()
        self._piece = piece
        self._alone = alone
        if alone.by_option:
            failure.warn(f"{alone.op} runs by itself", f"{alone.reason} (at {alone.line})")
        (output,) = piece.graph.find_nodes(op="output")
        nodes = [*piece.graph.find_nodes(op="placeholder"), *output.all_input_nodes]
        self._said = [node.meta.get("val") for node in nodes]
        self._inputs = len(nodes) - len(output.all_input_nodes)
        self._bare = _is_bare(piece)

    def forward(self, *args: Any) -> Any:
        if self._alone.by_option:
            METRICS.record_fallback(self._alone.op, self._alone.reason, self._alone.line)
        with issued_from(self._alone.line):
            results = self._piece(*args)
        given = [results] if self._bare else list(results)
        said, found = pytree.tree_leaves(self._said), pytree.tree_leaves([*args, *given])
        symbols = _values(zip(said, found, strict=True))
        placed = pytree.tree_map(
            lambda said, real: (
                laid_out(real, said, symbols) if isinstance(said, torch.Tensor) else real
            ),
            self._said[self._inputs :],
            given,
        )
        return placed[0] if self._bare else placed


def _values(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """What the symbols of the first stand for, by the second; a nested tensor's ragged size, for which
    there is no number, is no size of a tensor here.
    """
    import sympy

    values: dict[Any, Any] = {}
    for said, found in pairs:
        sizes = zip(_sizes(said), _sizes(found), strict=True)
        for size, number in sizes:
            symbolic = isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol)
            if symbolic and isinstance(number, int):
                values[size.node.expr] = sympy.Integer(number)
    return values


def _sizes(value: Any) -> Sequence[Any]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)


def _segments(graph: fx.Graph, alone: Mapping[fx.Node, Alone]) -> dict[fx.Node, int]:
    """Number of the piece that each node belongs to.

    A piece that runs by itself takes in what is made of its results without computing on tensors:
    their parts, their sizes, and what is checked of them. One without a lowering begins a piece, so
    that a piece has one line to name.
    """
    result: dict[fx.Node, int] = {}
    current, by_itself = 0, False
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node in alone:
            follows = by_itself and alone[node].why != "unlowered"
            current += not follows and bool(result)
            by_itself = True
        elif by_itself and not _is_bookkeeping(node):
            current += 1
            by_itself = False
        result[node] = current
    return result


def _is_bookkeeping(node: fx.Node) -> bool:
    return node.target is operator.getitem or not _gives_tensors(node)


def _gives_tensors(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves)


def _only_python(piece: fx.GraphModule) -> bool:
    return not any(
        node.op == "call_function" and _gives_tensors(node) for node in piece.graph.nodes
    )
