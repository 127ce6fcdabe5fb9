"""Sub-graphs that write to their inputs: their last nodes are ``copy_`` into placeholders."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx

from torchneuron.lowering.builder import Val
from torchneuron.lowering.interpreter import Interpreter

_COPY = torch.ops.aten.copy_.default
# The sub-graph without its writes, and which inputs it writes.
_Split = tuple[fx.GraphModule, tuple[int, ...]]
_splits: WeakKeyDictionary[fx.GraphModule, _Split] = WeakKeyDictionary()


def run(
    interpreter: Interpreter, gm: fx.GraphModule, operands: Sequence[Any]
) -> tuple[list[Any], dict[int, Val]]:
    """The sub-graph's results, and the new value of each input, by position, that it writes."""
    if not gm.graph.find_nodes(op="call_function", target=_COPY, sort=False):
        return interpreter.subgraph(gm, operands), {}
    if gm not in _splits:
        _splits[gm] = _split(gm)
    functional, written = _splits[gm]
    values = interpreter.subgraph(functional, operands)
    results = values[: len(values) - len(written)]
    return results, dict(zip(written, values[len(results) :], strict=True))


def _split(gm: fx.GraphModule) -> _Split:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    placeholders = gm.graph.find_nodes(op="placeholder")
    latest: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            continue
        if node.target is _COPY and node.args[0] in placeholders:
            # What comes after a write reads the new value.
            latest[node.args[0]] = copies[node.args[0]] = copies[node] = copies[node.args[1]]
            continue
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    written = tuple(i for i, node in enumerate(placeholders) if node in latest)
    (outputs,) = gm.graph.output_node().args
    given = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    given = fx.map_arg(tuple(given), lambda n: copies[n])
    graph.output((*given, *(latest[placeholders[i]] for i in written)))
    return fx.GraphModule(gm, graph), written
