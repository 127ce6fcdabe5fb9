"""Operations of a graph that run by themselves, between programs, as without ``torch.compile``.

* What finds a size (nonzero, masked_select, an ``.item()`` that a size is made of): the program that
  follows has shapes that nothing else tells.
* What raises an error that depends on values (``torch.linalg.inv`` of a singular matrix): only what
  reads the values can raise it.
* What no program can hold, since the operation has no lowering: it runs on the CPU, under the policy
  that holds for such operations without ``torch.compile`` (``TORCHNEURON_FALLBACK``). This is for
  PyTorch's own operations; a custom operator is an error unless ``options={"fallback": "eager"}``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from torchneuron.compile.captured import device_index, mutates
from torchneuron.compile.options import Options
from torchneuron.lowering import origin, registry
from torchneuron.settings import settings

_CHECKS = frozenset(
    {
        "aten._linalg_check_errors.default",
        "aten._assert_async.default",
        "aten._assert_async.msg",
        "aten._functional_assert_async.msg",
    }
)
_WITH_EFFECTS = torch.ops.higher_order.with_effects
_MAKE_TOKEN = torch.ops.prims._make_token.default
_SINK_TOKENS = torch.ops.prims._sink_tokens.default

Why = Literal["size", "check", "unlowered"]
REASONS: dict[Why, str] = {
    "size": "a size depends on what it finds",
    "check": "it raises an error that depends on values",
    "unlowered": "no emitter, decomposition or Torch-MLIR lowering",
}


@dataclass(frozen=True)
class Alone:
    """One operation that runs by itself: why, and the user's line that issued it."""

    why: Why
    op: str
    line: str

    @property
    def reason(self) -> str:
        """``why`` in words."""
        return REASONS[self.why]

    @property
    def by_option(self) -> bool:
        """Whether only ``options={"fallback": "eager"}`` lets it run: a custom operator."""
        return self.why == "unlowered" and not self.op.startswith("aten.")


def take_apart(gm: fx.GraphModule, options: Options) -> dict[fx.Node, Alone]:
    """The nodes that run by themselves; empty for a graph that is one program.

    Where there are any, the graph is put in an order in which few programs remain: checks come as
    late as they may, which is before anything that they guard is written or leaves the graph.
    """
    if device_index(gm.graph) is None:
        return {}
    finders = _finders(gm.graph)
    found: dict[fx.Node, Alone] = {}
    for node in list(gm.graph.nodes):
        why = _why(node, finders, options)
        if why is None:
            continue
        line = origin.line_of(node)
        if node.target is _WITH_EFFECTS:
            node = _without_token(node)
        found[node] = Alone(why, str(node.target), line)
    if found:
        _drop_idle_tokens(gm.graph)
        _gather_parts(gm.graph, found)
        _defer_checks(gm.graph, found)
        gm.recompile()
    return found


def _why(node: fx.Node, finders: set[fx.Node], options: Options) -> Why | None:
    if node in finders:
        return "size"
    op = node.args[1] if node.target is _WITH_EFFECTS else node.target
    if node.op != "call_function" or not isinstance(op, OpOverload):
        return None
    if str(op) in _CHECKS:
        return "check"
    return "unlowered" if _gives_tensors(node) and _must_run_alone(op, options) else None


def _must_run_alone(op: OpOverload, options: Options) -> bool:
    own = op.namespace != "aten"
    allowed = options.fallback == "eager" if own else settings.fallback != "error"
    return allowed and not op._schema.is_mutable and registry.road(op) is None


def _gives_tensors(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves)


# What finds a size


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


# The order of the graph


def _without_token(node: fx.Node) -> fx.Node:
    """The operation itself in place of ``with_effects``: what runs by itself runs in the graph's order."""
    token, op, *args = node.args
    assert isinstance(op, OpOverload)
    with node.graph.inserting_before(node):
        bare = node.graph.call_function(op, tuple(args), dict(node.kwargs))
    bare.meta = dict(node.meta)
    returned = list(node.meta.get("val") or (None, None))[1:]
    single = len(op._schema.returns) < 2
    bare.meta["val"] = returned[0] if single else tuple(returned)
    for user in list(node.users):
        index = user.args[1]
        assert user.target is operator.getitem
        assert isinstance(index, int)
        if index == 0:
            user.replace_all_uses_with(token)  # type: ignore[arg-type]
            node.graph.erase_node(user)
        elif single:
            user.replace_all_uses_with(bare)
            node.graph.erase_node(user)
        else:
            user.args = (bare, index - 1)
    node.graph.erase_node(node)
    return bare


def _drop_idle_tokens(graph: fx.Graph) -> None:
    """Erase the tokens that order nothing any more."""
    for sink in graph.find_nodes(op="call_function", target=_SINK_TOKENS):
        if all(token.target is _MAKE_TOKEN for token in sink.all_input_nodes):
            graph.erase_node(sink)
    for token in graph.find_nodes(op="call_function", target=_MAKE_TOKEN):
        if not token.users:
            graph.erase_node(token)


def _gather_parts(graph: fx.Graph, alone: dict[fx.Node, Alone]) -> None:
    """Let the parts of an operation's result follow it, so that no piece takes a tuple."""
    for node in alone:
        for user in reversed(list(node.users)):
            if user.target is operator.getitem:
                node.append(user)


def _defer_checks(graph: fx.Graph, alone: dict[fx.Node, Alone]) -> None:
    """Move checks down to the next operation that runs by itself, or to where the graph first writes."""
    waiting: list[fx.Node] = []
    for node in list(graph.nodes):
        known = alone.get(node)
        if known is not None and known.why == "check" and not node.users:
            waiting.append(node)
        elif known is not None or node.op == "output" or mutates(node):
            for check in waiting:
                node.prepend(check)
            waiting = []
