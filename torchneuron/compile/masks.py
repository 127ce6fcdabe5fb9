"""The graph that runs at a larger size: neutral elements in place of padded rows, numbers of the real size.

What a call's real sizes tell is an operand of the program, never a constant in it, so that one
program serves all sizes up to the padded one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from torchneuron.compile.captured import DEVICE
from torchneuron.compile.proving import Dim, Unproven, argument, expression

if TYPE_CHECKING:
    from torchneuron.compile.padding import Proof

Fill = float | Literal["lowest", "highest"]
# Changes a node's copy in a masked graph; the node is the one that the proof knows.
Edit = Callable[["MaskedGraph", fx.Node], None]
# A number made of sizes, and what an operand holds it as.
Number = tuple[Any, torch.dtype]

_ATEN = torch.ops.aten
_FILL = _ATEN.masked_fill.Scalar


class MaskedGraph:
    """A copy of a graph with the edits of a proof, giving ``outputs``.

    ``operands`` are the numbers it takes after the graph's own arguments, made of the arguments' real
    sizes, each as a tensor without dimensions.
    """

    def __init__(self, gm: fx.GraphModule, proof: Proof, outputs: Sequence[fx.Node]) -> None:
        """Raises Unproven where a size that a mask needs cannot be had."""
        self.proof = proof
        self.operands: list[Number] = []
        self.graph = fx.Graph()
        self._copies: dict[fx.Node, fx.Node] = {}
        self._reals: dict[Number, fx.Node] = {}
        self._sizes: dict[Any, Any] = {}
        self._masks: dict[tuple[Dim, int], fx.Node] = {}
        self._masked: dict[tuple[fx.Node, int, Fill], fx.Node] = {}
        edits: dict[fx.Node, list[Edit]] = {}
        for node, edit in proof.edits:
            edits.setdefault(node, []).append(edit)
        for node in gm.graph.nodes:
            if node.op != "output":
                self._copies[node] = self.graph.node_copy(node, self._copies.__getitem__)
            for edit in edits.get(node, ()):
                with self.graph.inserting_before(self._copies[node]):
                    edit(self, node)
        self.outputs = [self._copies[node] for node in outputs]
        self.graph.output(tuple(self.outputs))
        self.module = fx.GraphModule(gm, self.graph)

    # What edits do

    def copy(self, node: fx.Node) -> fx.Node:
        """What stands for a node of the proof's graph."""
        return self._copies[node]

    def replace(self, node: fx.Node, value: fx.Node) -> None:
        """Let ``value`` stand for a node."""
        self.graph.erase_node(self._copies[node])
        self._copies[node] = value

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """A new operation, which says what it gives."""
        node = self.graph.call_function(target, args, kwargs)
        with self._example.fake_mode:
            node.meta["val"] = target(*map_arg(args, lambda x: x.meta["val"]), **kwargs)
        return node

    @property
    def device(self) -> torch.device:
        """Where the graph runs."""
        device: torch.device = self._example.device
        return device

    def masked(self, operand: fx.Node, dims: set[int], fill: Fill) -> fx.Node:
        """A value with ``fill`` in the padded rows of these dimensions."""
        layout, value = self.proof.of(operand), self._copies[operand]
        for dim in sorted(dims):
            key = (value, dim, fill)
            if key not in self._masked:
                mask = self.mask(layout[dim], len(layout) - dim - 1)
                said = value.meta["val"]
                args = (value, mask, _element(fill, said.dtype))
                node = self._masked[key] = self.graph.call_function(_FILL, args)
                # Sooner known than by running the operator on what stands for its operands.
                with self._example.fake_mode:
                    node.meta["val"] = torch.empty_like(said)
            value = self._masked[key]
        return value

    def mask(self, dim: Dim, after: int) -> fx.Node:
        """Which rows of a dimension are padded, with ``after`` dimensions of size 1 behind it."""
        key = (dim, after)
        if key not in self._masks and after:
            self._masks[key] = self.call(_ATEN.unsqueeze.default, self.mask(dim, after - 1), -1)
        elif key not in self._masks:
            places = [place for place, factor in enumerate(dim) if factor == self.proof.symbol]
            found, *others = (self._rows(dim, place) for place in places)
            for other in others:
                found = self.call(_ATEN.logical_or.default, found, other)
            self._masks[key] = found
        return self._masks[key]

    def real(self, number: Any, dtype: torch.dtype = torch.int64) -> fx.Node:
        """A number made of the real sizes, as an operand of the program."""
        key = (number, dtype)
        if key not in self._reals:
            symbol, count = self.proof.symbol, len(self.operands)
            last = [node for node in self.graph.nodes if node.op == "placeholder"][-1]
            with self.graph.inserting_after(last):
                found = self._reals[key] = self.graph.placeholder(f"{symbol}_real_{count}")
            self.operands.append(key)
            with self._example.fake_mode:
                found.meta["val"] = torch.empty((), dtype=dtype)
        return self._reals[key]

    def size(self, size: Any) -> Any:
        """A size of this graph, the padded one where it is made of the symbol."""
        if size.is_Integer:
            return int(size)
        if size not in self._sizes:
            if isinstance(size, sympy.Symbol):
                self._sizes[size] = self._symbol(size)
            elif isinstance(size, sympy.Mul):
                first, *rest = map(self.size, size.args)
                for factor in rest:
                    first = self.call(operator.mul, first, factor)
                self._sizes[size] = first
            else:
                raise Unproven(f"a dimension of size {size}")
        return self._sizes[size]

    # Parts of these

    def _rows(self, dim: Dim, place: int) -> fx.Node:
        """Which rows of a dimension are padded, as its factor at ``place`` tells."""
        rows = self.call(_ATEN.arange.default, self.size(dim[place]), device=self.device)
        mask = self.call(_ATEN.ge.Tensor, rows, self.real(self.proof.symbol))
        if len(dim) == 1:
            return mask
        sizes = [self.size(factor) for factor in dim]
        apart = [size if i == place else 1 for i, size in enumerate(sizes)]
        whole = self.call(_ATEN.expand.default, self.call(_ATEN.view.default, mask, apart), sizes)
        return self.call(_ATEN.reshape.default, whole, [self.size(sympy.prod(dim))])

    def _symbol(self, symbol: sympy.Symbol) -> fx.Node:
        """From the argument that is the size, or one that has it."""
        arguments = [(node, node.meta.get("val")) for node in self._arguments]
        for node, value in arguments:
            if isinstance(value, torch.SymInt) and value.node.expr == symbol:
                return node
        for node, value in arguments:
            for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if expression(size) == symbol:
                    return self.call(_ATEN.sym_size.int, node, dim)
        raise Unproven(f"no argument tells {symbol}")

    @property
    def _arguments(self) -> list[fx.Node]:
        return [self._copies[node] for node in self.proof.layouts if node.op == "placeholder"]

    @property
    def _example(self) -> Any:
        values = [node.meta.get("val") for node in self._arguments]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        on_device = [tensor for tensor in tensors if tensor.device.type == DEVICE]
        return (on_device or tensors)[0]


def _element(fill: Fill, dtype: torch.dtype) -> float:
    """A neutral element in a dtype."""
    if not isinstance(fill, str):
        return fill
    if dtype.is_floating_point:
        return float("-inf") if fill == "lowest" else float("inf")
    if dtype == torch.bool:
        return int(fill == "highest")
    limits = torch.iinfo(dtype)
    return limits.min if fill == "lowest" else limits.max


# Edits


def put_mask(graph: MaskedGraph, node: fx.Node, position: int, dims: set[int], fill: Fill) -> None:
    """An argument with ``fill`` in its padded rows."""
    operand = node.args[position]
    assert isinstance(operand, fx.Node)
    graph.copy(node).update_arg(position, graph.masked(operand, dims, fill))


def put_number(graph: MaskedGraph, node: fx.Node, position: int) -> None:
    """A number made of the real sizes in place of one of the padded; raises Unproven where the operator
    takes no tensor there.
    """
    copy = graph.copy(node)
    assert isinstance(node.target, OpOverload)
    if str(node.target._schema.arguments[position].type) != "Tensor":
        with_tensor = getattr(node.target.overloadpacket, "Tensor", None)
        if node.target._overloadname != "Scalar" or with_tensor is None:
            raise Unproven(f"{node.target} computes with the size itself")
        copy.target = with_tensor
    copy.update_arg(position, _real_argument(graph, node, position))


def put_filled(graph: MaskedGraph, node: fx.Node, position: int) -> None:
    """A number made of the real sizes everywhere, in place of one of the padded."""
    if node.meta["val"].dtype == torch.bool:
        raise Unproven(f"{node.target} compares the size itself")
    args = [0 if i == position else x for i, x in enumerate(graph.copy(node).args)]
    assert callable(node.target)
    # The number 0 gives the dtype, where no other is named.
    kwargs = {**node.kwargs, "dtype": node.meta["val"].dtype}
    zeros = graph.call(node.target, *args, **kwargs)
    number = _real_argument(graph, node, position)
    graph.replace(node, graph.call(_ATEN.add.Tensor, zeros, number))


def _real_argument(graph: MaskedGraph, node: fx.Node, position: int) -> fx.Node:
    operand, dtype = node.args[position], node.meta["val"].dtype
    assert isinstance(operand, fx.Node)
    number = expression(operand.meta["val"])
    if not (number.is_integer or dtype.is_floating_point):
        raise Unproven(f"{node.target} computes with a number made of the size")
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return graph.real(number, torch.int64 if number.is_integer else wide)


def put_mean(graph: MaskedGraph, node: fx.Node, dims: set[int]) -> None:
    """The sum of the wanted rows by their number."""
    operand, dtype = node.args[0], node.meta["val"].dtype
    assert isinstance(operand, fx.Node)
    layout = graph.proof.of(operand)
    rows = graph.masked(operand, dims & graph.proof.padded(layout), 0)
    count = sympy.prod([factor for dim in dims for factor in layout[dim]])
    half = dtype in (torch.float16, torch.bfloat16)
    keepdim = bool(argument(node, "keepdim"))
    wide = torch.float32 if half else dtype
    total = graph.call(_ATEN.sum.dim_IntList, rows, sorted(dims), keepdim, dtype=wide)
    mean = graph.call(_ATEN.div.Tensor, total, graph.real(count))
    graph.replace(node, graph.call(_ATEN._to_copy.default, mean, dtype=dtype) if half else mean)


def put_bias(graph: MaskedGraph, node: fx.Node, bias: fx.Node | None, keys: Dim) -> None:
    """Attention that does not see the padded keys."""
    if bias is not None:
        masked = graph.masked(bias, {len(graph.proof.of(bias)) - 1}, "lowest")
    else:
        query, size = node.args[0], graph.size(sympy.prod(keys))
        assert isinstance(query, fx.Node)
        dtype = query.meta["val"].dtype
        none = graph.call(_ATEN.zeros.default, [1, size], dtype=dtype, device=graph.device)
        hidden = graph.mask(keys, 0)
        masked = graph.call(_FILL, none, hidden, float("-inf"))
    copy = graph.copy(node)
    copy.args = (*copy.args[:3], masked, *copy.args[4:])
