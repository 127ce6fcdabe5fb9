"""Graphs in which a size depends on data: cut where the size is found, into graphs of the usual kind.

What finds a size (nonzero, masked_select, an ``.item()`` that a size is made of) runs as an
operation of its own, as without ``torch.compile``. What follows is a symbolic graph that takes the
size with its arguments, and has a program for each.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

Compile = Callable[[fx.GraphModule], Callable[..., Any]]


def finds_sizes(gm: fx.GraphModule) -> bool:
    """Whether a size that the graph uses or gives depends on data."""
    return bool(_finders(gm.graph))


class SegmentedGraph:
    """A graph in pieces: those that find sizes run op by op, the others as ``compile_piece`` says."""

    # AOTAutograd's mark of a callable that takes one list and may empty it.
    _boxed_call = True

    def __init__(self, gm: fx.GraphModule, compile_piece: Compile) -> None:
        """``compile_piece`` makes a function of a graph, as a compiler that AOTAutograd calls."""
        from torch.fx.passes.split_module import split_module

        segments = _segments(gm.graph)
        whole = split_module(gm, gm, lambda node: segments[node], keep_original_order=True)
        for name, piece in list(whole.named_children()):
            assert isinstance(piece, fx.GraphModule)
            if _finders(piece.graph):
                setattr(whole, name, _Finder(piece))
            elif not _only_python(piece):
                setattr(whole, name, _Piece(compile_piece(piece), _is_bare(piece)))
        self._forward = whole.forward

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """The graph's results for its arguments."""
        given = list(args)
        args.clear()
        results = self._forward(*given)
        return results if isinstance(results, (tuple, list)) else (results,)


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


class _Finder(torch.nn.Module):
    """A piece that finds a size, run op by op.

    Its results lie in memory as the capture says: the pieces after it take their views by that.
    """

    def __init__(self, piece: fx.GraphModule) -> None:
        super().__init__()
        self._piece = piece
        (output,) = piece.graph.find_nodes(op="output")
        nodes = [*piece.graph.find_nodes(op="placeholder"), *output.all_input_nodes]
        self._said = [node.meta.get("val") for node in nodes]
        self._inputs = len(nodes) - len(output.all_input_nodes)
        self._bare = _is_bare(piece)

    def forward(self, *args: Any) -> Any:
        results = self._piece(*args)
        given = [results] if self._bare else list(results)
        said, found = pytree.tree_leaves(self._said), pytree.tree_leaves([*args, *given])
        symbols = _values(zip(said, found, strict=True))
        laid_out = pytree.tree_map(
            lambda fake, real: _laid_out(real, fake, symbols), self._said[self._inputs :], given
        )
        return laid_out[0] if self._bare else laid_out


def _values(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """What the symbols of the first stand for, by the second."""
    import sympy

    values: dict[Any, Any] = {}
    for said, found in pairs:
        sizes = zip(_sizes(said), _sizes(found), strict=True)
        for size, number in sizes:
            if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                values[size.node.expr] = sympy.Integer(number)
    return values


def _sizes(value: Any) -> Sequence[Any]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)


def _laid_out(real: Any, said: Any, symbols: dict[Any, Any]) -> Any:
    if not isinstance(said, torch.Tensor):
        return real
    strides = [
        int(stride.node.expr.xreplace(symbols)) if isinstance(stride, torch.SymInt) else stride
        for stride in said.stride()
    ]
    if list(real.stride()) == strides:
        return real
    return torch.empty_strided(real.shape, strides, dtype=real.dtype, device=real.device).copy_(
        real
    )


def _segments(graph: fx.Graph) -> dict[fx.Node, int]:
    """Number of the piece that each node belongs to.

    A piece that finds a size takes in what is made of it without computing on tensors: the parts of
    its result, their sizes, and what is checked of them.
    """
    finders = _finders(graph)
    result: dict[fx.Node, int] = {}
    current, finding = 0, False
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node in finders:
            current += not finding and bool(result)
            finding = True
        elif finding and not _is_bookkeeping(node):
            current += 1
            finding = False
        result[node] = current
    return result


def _finders(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that bring a symbol into being which stands for a size."""
    candidates = [
        node
        for node in graph.nodes
        if node.op == "call_function" and node.meta.get("unbacked_bindings")
    ]
    if not candidates:
        return set()
    needed = _needed_symbols(graph)
    return {
        node
        for node in candidates
        if any(needed & free_unbacked_symbols(number) for number in _numbers(node.meta.get("val")))
    }


def _needed_symbols(graph: fx.Graph) -> set[Any]:
    """The symbols that no program can be built without: in sizes, and numbers among the results."""
    needed: set[Any] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, (torch.Tensor, tuple, list)):
            for number in _numbers(value):
                needed |= free_unbacked_symbols(number)
    (output,) = graph.find_nodes(op="output")
    for node in output.all_input_nodes:
        for number in _numbers(node.meta.get("val")):
            needed |= free_unbacked_symbols(number)
    return needed


def _numbers(value: Any) -> Iterator[Any]:
    """Sizes and strides of the tensors in ``value``, and the numbers in it."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            yield from (*leaf.shape, *leaf.stride())
        elif isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            yield leaf


def _is_bookkeeping(node: fx.Node) -> bool:
    return node.target is operator.getitem or not _gives_tensors(node)


def _gives_tensors(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves)


def _only_python(piece: fx.GraphModule) -> bool:
    return not any(
        node.op == "call_function" and _gives_tensors(node) for node in piece.graph.nodes
    )
