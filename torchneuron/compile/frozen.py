"""``options={"freeze": True}``: what an inference graph computes of its parameters alone is computed once.

The graph is split in two: one makes packed values (weights in another dtype, folded normalisations)
of the parameters and buffers, the other takes them as arguments. Values are packed anew when a
parameter is another tensor or has been written since, so that results stay those of the whole graph.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from torchneuron.compile.captured import mutates, storage_of
from torchneuron.program.metrics import METRICS

Compile = Callable[[fx.GraphModule], Callable[..., Any]]


def static_arguments() -> frozenset[int]:
    """Positions of the parameters and buffers among the arguments of the graph that AOTAutograd has
    compiled now; only its own notes tell.
    """
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return frozenset()
    return frozenset(context.fw_metadata.static_input_indices or ())


class FrozenGraph:
    """An inference graph in two: ``pack`` runs when parameters change, ``main`` at every call."""

    # AOTAutograd's mark of a callable that takes one list and may empty it.
    _boxed_call = True

    def __init__(self, pack: Callable[..., Any], main: Callable[..., Any], used: Sequence[int]):
        """Both take what their graph takes, ``pack`` the arguments at the positions ``used``, ``main``
        all of them and then what ``pack`` gives.
        """
        self._pack = pack
        self._main = main
        self._used = tuple(used)
        self._seen: list[_Seen] = []
        self._packed: list[Any] = []

    def __call__(self, args: list[Any]) -> Any:
        """The graph's results for its arguments."""
        parameters = [args[i] for i in self._used]
        if not self._seen or not all(map(_Seen.holds, self._seen, parameters)):
            METRICS.add("frozen_packs")
            self._seen = [_Seen(parameter) for parameter in parameters]
            self._packed = list(_call(self._pack, parameters))
        return _call(self._main, [*args, *self._packed])


class _Seen:
    """A parameter as it was packed."""

    __slots__ = ("address", "reference", "version")

    def __init__(self, parameter: torch.Tensor) -> None:
        self.reference = weakref.ref(parameter)
        self.address = parameter.data_ptr()
        self.version = _version(parameter)

    def holds(self, parameter: torch.Tensor) -> bool:
        """Whether it is the same tensor in the same memory, and has not been written since."""
        return (
            self.reference() is parameter
            and self.version == _version(parameter)
            and self.address == parameter.data_ptr()
        )


def _version(parameter: torch.Tensor) -> int:
    """How often it was written; inference tensors do not count."""
    return 0 if parameter.is_inference() else parameter._version


def _call(function: Callable[..., Any], args: list[Any]) -> Any:
    return function(args) if getattr(function, "_boxed_call", False) else function(*args)


def freeze(
    gm: fx.GraphModule, static: frozenset[int], compile_graph: Compile
) -> FrozenGraph | None:
    """The graph with what depends on the arguments ``static`` alone computed beforehand; None where
    nothing does.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    sources = _sources(gm.graph, {node for i, node in enumerate(placeholders) if i in static})
    packed = _packed(gm.graph, sources)
    if not packed:
        return None
    used = [i for i, node in enumerate(placeholders) if any(node in sources[p] for p in packed)]
    pack = _pack_graph(gm, packed, [placeholders[i] for i in used])
    main = _main_graph(gm, packed)
    return FrozenGraph(compile_graph(pack), compile_graph(main), used)


def _sources(graph: fx.Graph, static: set[fx.Node]) -> dict[fx.Node, frozenset[fx.Node]]:
    """For each value that depends on static arguments alone: on which."""
    found: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in graph.nodes:
        if node in static and not any(mutates(user) for user in node.users):
            found[node] = frozenset({node})
        elif node.op == "get_attr":
            found[node] = frozenset()
        elif _is_pure(node) and all(source in found for source in node.all_input_nodes):
            made_of = frozenset().union(*(found[source] for source in node.all_input_nodes))
            if not _is_expanded(node, made_of):
                found[node] = made_of
    return found


def _is_pure(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return True
    op = node.target
    return (
        isinstance(op, OpOverload)
        and not op._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in op.tags
        and bool(node.all_input_nodes)
    )


def _is_expanded(node: fx.Node, made_of: frozenset[fx.Node]) -> bool:
    """Larger than all it is made of: cheaper to make than to keep."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return False
    given = sum(source.meta["val"].numel() for source in made_of)
    return not isinstance(value.numel(), int) or value.numel() > given


def _packed(graph: fx.Graph, sources: dict[fx.Node, frozenset[fx.Node]]) -> list[fx.Node]:
    """The computed values, not views of others, that the rest of the graph draws on.

    Those that leave the graph stay in it: a caller may write what it gets.
    """
    first: dict[int, fx.Node] = {}
    for node in graph.nodes:
        if (key := storage_of(node)) is not None:
            first.setdefault(key, node)
    (output,) = graph.find_nodes(op="output")
    leaving = {storage_of(node) for node in output.all_input_nodes}
    packed: dict[fx.Node, None] = {}
    for node in sources:
        key = storage_of(node)
        if key is None or key in leaving or all(user in sources for user in node.users):
            continue
        base = first[key]
        if base.op == "call_function" and sources.get(base):
            packed[base] = None
    return list(packed)


def _pack_graph(
    gm: fx.GraphModule, packed: Sequence[fx.Node], used: Sequence[fx.Node]
) -> fx.GraphModule:
    graph = fx.Graph()
    copies = {node: graph.node_copy(node) for node in used}
    needed = _ancestors(packed)
    for node in gm.graph.nodes:
        if node in needed and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in packed))
    return fx.GraphModule(gm, graph)


def _ancestors(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return found


def _main_graph(gm: fx.GraphModule, packed: Sequence[fx.Node]) -> fx.GraphModule:
    """Takes the values ``packed`` after its arguments."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.find_nodes(op="placeholder"):
        copies[node] = graph.node_copy(node)
    for node in packed:
        copies[node] = graph.placeholder(f"packed_{node.name}")
        copies[node].meta = dict(node.meta)
    for node in gm.graph.nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.eliminate_dead_code()
    return fx.GraphModule(gm, graph)
