"""``while_loop`` that is differentiated: its forward keeps every step, of which only the run tells the number.

A program holds a fixed number of steps, stacked; it says how many there were and whether there are
more, which the next program goes on with. The stacks are put together at the end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

_OPERATOR = torch.ops.higher_order.while_loop_stack_output
# Steps of the first program; each one after it holds four times as many, up to the last.
_FIRST, _LAST = 16, 4096

Compile = Callable[[fx.GraphModule], Callable[..., Any]]


def compile_loops(piece: fx.GraphModule, compile_graph: Compile) -> None:
    """Let every such loop of ``piece`` run as programs."""
    for number, node in enumerate(piece.graph.find_nodes(op="call_function", target=_OPERATOR)):
        name = f"stacked_loop_{number}"
        piece.add_submodule(name, StackedLoop(piece, node, compile_graph))
        with piece.graph.inserting_before(node):
            call = piece.graph.call_module(name, (*node.args[2], *node.args[3]))
        call.meta = dict(node.meta)
        node.replace_all_uses_with(call)
        piece.graph.erase_node(node)
    piece.recompile()


class StackedLoop(torch.nn.Module):
    """Takes what is carried and then the other inputs; gives each step's results, stacked."""

    def __init__(self, gm: fx.GraphModule, node: fx.Node, compile_graph: Compile) -> None:
        """``node`` is the loop's in ``gm``."""
        super().__init__()
        self._gm = gm
        self._subgraphs = [str(graph.target) for graph in node.args[:2]]  # type: ignore[union-attr]
        self._operands = [*node.args[2], *node.args[3]]  # type: ignore[misc]
        self._count = len(node.args[2])  # type: ignore[arg-type]
        self._trace = node.meta.get("stack_trace")
        self._compile = compile_graph
        self._graphs: dict[int, Callable[..., Any]] = {}

    def forward(self, *operands: Any) -> tuple[torch.Tensor, ...]:
        """At least one step: that of a loop that ends at once is what it was given."""
        carried = list(operands[: self._count])
        others = [
            value
            for value, node in zip(operands, self._operands, strict=True)
            if isinstance(node, fx.Node)
        ][self._count :]
        stacks: list[Sequence[torch.Tensor]] = []
        for capacity in _capacities():
            *results, counts = self._graph(capacity)([*carried, *others])
            steps, more = counts.tolist()
            carried = results[self._count :]
            stacks.append([stack[:steps] for stack in results[: self._count]])
            if not more:
                break
        if not stacks[0][0].shape[0]:
            return tuple(value.unsqueeze(0).clone() for value in operands[: self._count])
        if len(stacks) == 1:
            return tuple(stacks[0])
        return tuple(torch.cat(parts) for parts in zip(*stacks, strict=True))

    def _graph(self, capacity: int) -> Callable[..., Any]:
        if capacity not in self._graphs:
            compiled = self._compile(self._bounded(capacity))
            boxed = getattr(compiled, "_boxed_call", False)
            self._graphs[capacity] = compiled if boxed else lambda args: compiled(*args)
        return self._graphs[capacity]

    def _bounded(self, capacity: int) -> fx.GraphModule:
        """The loop of at most ``capacity`` steps."""
        graph = fx.Graph()
        subgraphs = [graph.get_attr(name) for name in self._subgraphs]
        given = [self._input(graph, operand) for operand in self._operands]
        loop = graph.call_function(
            _OPERATOR, (*subgraphs, given[: self._count], given[self._count :], capacity)
        )
        carried = [operand.meta["val"] for operand in self._operands[: self._count]]
        stacked = [value.new_empty((capacity, *value.shape)) for value in carried]
        counts = carried[0].new_empty((2,), dtype=torch.int64)
        last = [value.new_empty(value.shape) for value in carried]
        loop.meta = {"val": (*stacked, *last, counts), "stack_trace": self._trace}
        results = []
        for index, value in enumerate(loop.meta["val"]):
            results.append(graph.call_function(operator.getitem, (loop, index)))
            results[-1].meta = {"val": value, "stack_trace": self._trace}
        graph.output(tuple(results))
        return fx.GraphModule(self._gm, graph)

    @staticmethod
    def _input(graph: fx.Graph, operand: Any) -> Any:
        if not isinstance(operand, fx.Node):
            return operand
        placeholder = graph.placeholder(operand.name)
        placeholder.meta = dict(operand.meta)
        return placeholder


def _capacities() -> Iterator[int]:
    capacity = _FIRST
    while True:
        yield capacity
        capacity = min(4 * capacity, _LAST)
