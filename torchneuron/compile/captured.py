"""What a graph of AOTAutograd's says about itself: arguments, results, mutations, who aliases whom.

Everything here is known when the graph is captured; sizes may still be symbols.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torchneuron.compile import canonical
from torchneuron.lowering.errors import LoweringError

DEVICE = "neuron"
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_COPY = torch.ops.aten.copy_.default


@dataclass(frozen=True)
class View:
    """Where in its base a tensor lies; numbers may be symbols. The offset counts elements of ``dtype``
    from the base's own offset.
    """

    dtype: torch.dtype
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any


@dataclass(frozen=True)
class Result:
    """One of the graph's results.

    ``source`` is "output" (``index`` counts the program's outputs), "argument" (``index`` is the
    argument's position) or "constant" (``value`` is a number, a symbol or None).
    """

    source: str
    index: int = 0
    value: Any = None
    view: View | None = None
    on_host: bool = False


@dataclass(frozen=True)
class Mutation:
    """Argument ``position`` gets the value of output ``output``."""

    position: int
    output: int


class CapturedGraph:
    """A functional ATen graph whose arguments and results are flat lists.

    ``outputs`` are the nodes that a program computes: first those that ``results`` draw on, then the
    new values of the mutated arguments. ``module.graph`` gives exactly them; ``read`` tells which
    arguments it uses.
    """

    def __init__(self, gm: fx.GraphModule) -> None:
        """Analyse ``gm``. Raises LoweringError for a node that writes in a way we cannot follow."""
        self.placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        self.symbolic = any(_is_symbolic(node) for node in gm.graph.nodes)
        self._positions = {node: i for i, node in enumerate(self.placeholders)}
        self._writes = list(_writes(gm.graph))
        self.outputs: list[fx.Node] = []
        self.results = self._find_results(_result_nodes(gm.graph))
        self.fresh = len(self.outputs)
        self.mutations = [
            Mutation(self._positions[target], self._output(value, shared=False))
            for target, value in self._writes
        ]
        self.module = _with_outputs(gm, self.outputs, self.symbolic)
        self.read = [bool(node.users) for node in self.module.graph.find_nodes(op="placeholder")]
        self.device = device_index(gm.graph)
        self.text = canonical.graph_text(self.module)
        self.digest = hashlib.sha256(
            (self.text + canonical.value_text((self.results, self.mutations))).encode()
        ).hexdigest()

    @staticmethod
    def without_inferable(gm: fx.GraphModule) -> fx.GraphModule:
        """A copy of the captured graph whose nodes say what they give only where this class asks:
        arguments, results, and what shares a storage with a result.
        """
        results = {
            storage_of(node) for node in _result_nodes(gm.graph) if isinstance(node, fx.Node)
        }
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in gm.graph.nodes:
            copy = copies[node] = graph.node_copy(node, copies.__getitem__)
            if node.op == "call_function" and storage_of(node) not in results - {None}:
                is_result = any(user.op == "output" for user in node.users)
                copy.meta = {k: v for k, v in node.meta.items() if k != "val" or is_result}
        return fx.GraphModule(gm, graph)

    @property
    def uses_device(self) -> bool:
        """Whether any value of the graph is on the device."""
        return self.device is not None

    def _output(self, node: fx.Node, shared: bool = True) -> int:
        if shared and node in self.outputs:
            return self.outputs.index(node)
        self.outputs.append(node)
        return len(self.outputs) - 1

    def _find_results(self, nodes: Sequence[Any]) -> list[Result]:
        storages = _Storages(self.placeholders, {target for target, _ in self._writes})
        for node in nodes:
            storages.count(node)
        return [self._result(node, storages) for node in nodes]

    def _result(self, node: Any, storages: _Storages) -> Result:
        if not isinstance(node, fx.Node):
            return Result("constant", value=node)
        value = node.meta.get("val")
        if isinstance(value, (int, float, bool, *SYMBOLIC)) or value is None:
            return Result("constant", value=value)
        if not isinstance(value, torch.Tensor):
            raise LoweringError(
                "output", f"a compiled graph cannot give back a {type(value).__name__}"
            )
        on_host = value.device.type != DEVICE
        base = storages.base_of(node)
        if base is node or base is None:
            if node.op == "placeholder" and base is node:
                return Result("argument", self._positions[node], on_host=on_host)
            return Result("output", self._output(node), on_host=on_host)
        view = _view(value, base.meta["val"])
        if base.op == "placeholder":
            return Result("argument", self._positions[base], view=view, on_host=on_host)
        return Result("output", self._output(base), view=view, on_host=on_host)


class _Storages:
    """Which nodes' tensors lie in the same storage, as the fake tensors of the capture tell."""

    def __init__(self, placeholders: Sequence[fx.Node], written: set[fx.Node]) -> None:
        self._first: dict[int, fx.Node] = {}
        self._results: dict[int, int] = {}
        self._written = {key for node in written if (key := storage_of(node)) is not None}
        self._placeholders = placeholders
        for node in placeholders[0].graph.nodes if placeholders else ():
            if (key := storage_of(node)) is not None:
                self._first.setdefault(key, node)

    def count(self, node: Any) -> None:
        if isinstance(node, fx.Node) and (key := storage_of(node)) is not None:
            self._results[key] = self._results.get(key, 0) + 1

    def base_of(self, node: fx.Node) -> fx.Node | None:
        """The node whose tensor the result is a view of: itself, or None for a copy of its own."""
        key = storage_of(node)
        if key is None:
            return node
        base = self._first.get(key, node)
        if key in self._written:
            # The result is what the storage held before the write.
            return None
        if base is node or base.op == "placeholder":
            return base
        value, whole = node.meta["val"], base.meta["val"]
        if not _owns_its_storage(whole):
            return None
        if self._results[key] == 1 and _is_dense(value) and value.dtype == whole.dtype:
            return None if not _same_numel(value, whole) else base
        return base


def storage_of(node: fx.Node) -> int | None:
    """What tells a node's storage from others; None where it has none to share."""
    value = node.meta.get("val")
    if node.op == "output" or not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    # A lazy conjugate or negative is a value of its own here: its memory holds another one.
    if value.is_conj() or value.is_neg():
        return None
    return int(value.untyped_storage()._cdata)


def mutates(node: fx.Node) -> bool:
    """Whether the operation writes to an argument, by its schema."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _view(value: torch.Tensor, base: torch.Tensor) -> View | None:
    if value is base:
        return None
    start = base.storage_offset() * base.element_size()
    if isinstance(start, int) and start % value.element_size():
        raise LoweringError("output", "a view of another dtype that begins between two elements")
    offset = value.storage_offset() - start // value.element_size()
    same = (
        value.dtype == base.dtype
        and _equal(value.shape, base.shape)
        and _equal(value.stride(), base.stride())
        and isinstance(offset, int)
        and offset == 0
    )
    return None if same else View(value.dtype, tuple(value.shape), tuple(value.stride()), offset)


def _equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Equal as far as is known without a guard."""
    return len(left) == len(right) and all(
        canonical.value_text(a) == canonical.value_text(b) for a, b in zip(left, right, strict=True)
    )


def _same_numel(left: torch.Tensor, right: torch.Tensor) -> bool:
    return canonical.value_text(left.numel()) == canonical.value_text(right.numel())


def _is_dense(tensor: torch.Tensor) -> bool:
    """Contiguous in some order of its dimensions; a symbolic tensor only in its own order."""
    if any(isinstance(n, torch.SymInt) for n in (*tensor.shape, *tensor.stride())):
        expected: Any = 1
        for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
            if canonical.value_text(stride) != canonical.value_text(expected):
                return False
            expected = expected * size
        return True
    return bool(torch.ops.aten.is_non_overlapping_and_dense.default(tensor))


def _owns_its_storage(tensor: torch.Tensor) -> bool:
    offset = tensor.storage_offset()
    return isinstance(offset, int) and offset == 0 and _is_dense(tensor)


def _is_symbolic(node: fx.Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, SYMBOLIC):
        return True
    leaves = value if isinstance(value, (tuple, list)) else (value,)
    return any(
        isinstance(leaf, torch.Tensor)
        and any(isinstance(n, torch.SymInt) for n in (*leaf.shape, *leaf.stride()))
        for leaf in leaves
    )


def _result_nodes(graph: fx.Graph) -> Sequence[Any]:
    (output,) = graph.find_nodes(op="output")
    results = output.args[0]
    return results if isinstance(results, (tuple, list)) else (results,)


def _writes(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    """(argument, its new value) for each ``copy_`` into an argument, which AOTAutograd puts last."""
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.target is _COPY and node.args[0].op == "placeholder":
            yield node.args[0], node.args[1]
        elif node.target._schema.is_mutable:
            raise LoweringError(node.target, "it writes inside a graph that should be functional")


def _with_outputs(gm: fx.GraphModule, outputs: Sequence[fx.Node], symbolic: bool) -> fx.GraphModule:
    """The graph without its ``copy_`` nodes, giving ``outputs``; it shares ``gm``'s attributes.

    What its nodes give is not kept where sizes are symbols: it is inferred for each specialisation.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            continue
        if node.target is _COPY and node.args[0].op == "placeholder":
            copies[node] = copies[node.args[1]]
            continue
        copies[node] = graph.node_copy(node, lambda n: copies[n])
        if symbolic and node.op == "call_function":
            copies[node].meta.pop("val", None)
    graph.output(tuple(copies[node] for node in outputs))
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    module = torch.nn.Module()
    for node in graph.nodes:
        if node.op == "get_attr":
            _share(gm, module, str(node.target))
    module.graph = graph  # type: ignore[assignment]
    return module  # type: ignore[return-value]


def _share(source: Any, target: torch.nn.Module, path: str) -> None:
    first = path.split(".")[0]
    if not hasattr(target, first):
        object.__setattr__(target, first, getattr(source, first))


def device_index(graph: fx.Graph) -> int | None:
    """Index of the device that the graph's tensors are on; None if all are on the CPU."""
    for node in graph.nodes:
        value = node.meta.get("val")
        for leaf in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == DEVICE:
                return int(leaf.device.index or 0)
    return None
