"""Proves that a symbolic graph may run at a larger size: rows that are padded in never reach the others.

For one symbol, every value of the graph gets a layout: of which factors each of its dimensions is
made. A dimension with the symbol among its factors holds the wanted rows and others after them, which
may hold anything. Each operation has a rule that gives its result's layout, or raises ``Unproven``: a
row of the result must be made of the same rows of the operands alone. Where an operation computes along
the padded dimension, its rule may ask for an edit of the graph that puts a neutral element in place of
the padded rows (``masks``). Operations without a rule and random numbers prove nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial
from itertools import islice, permutations
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from torchneuron.compile import padding_rows, padding_sums  # noqa: F401 (they register rules)
from torchneuron.compile.masks import Edit, Fill, put_mask, put_number
from torchneuron.compile.proving import (
    RULES,
    Dim,
    Layout,
    Unproven,
    expression,
    is_symbolic,
    name_of,
    same,
)

# Stands for the number in an order of a dimension's factors.
NUMBER = sympy.Symbol("number")
# More orders than these are not tried.
_MAX_ORDERS = 6


class Proof:
    """The layouts of a graph's values for ``symbol``; making one raises Unproven.

    ``edits`` are what the graph needs before it runs at a larger size, in the order of its nodes;
    ``bounds`` are sizes that the larger one must not exceed.
    """

    def __init__(self, graph: fx.Graph, symbol: sympy.Symbol, order: tuple[Any, ...] = ()) -> None:
        """``graph`` is functional; its nodes say what they give, in symbols.

        ``order`` is that of the factors in a dimension of several, where nothing else tells it.
        """
        self.symbol = symbol
        self.order = order
        self.layouts: dict[fx.Node, Any] = {}
        self.edits: list[tuple[fx.Node, Edit]] = []
        self.bounds: list[Any] = []
        for node in graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.layouts[node] = self.natural(node.meta.get("val"))
            elif node.op == "call_function":
                self.layouts[node] = self._checked(node, self._call(node))

    def is_padded(self, dim: Dim) -> bool:
        """Whether the dimension holds rows that nobody wants."""
        return self.symbol in dim

    def padded(self, layout: Layout) -> set[int]:
        """The dimensions that hold rows that nobody wants."""
        return {place for place, dim in enumerate(layout) if self.is_padded(dim)}

    def keeps_places(self, dim: Dim) -> bool:
        """Whether the wanted rows lie where they lay before: none, or only other rows, are before them."""
        return not self.is_padded(dim) or self.symbol not in dim[1:]

    def of(self, node: Any) -> Layout:
        """Layout of an operand."""
        layout = self.layouts.get(node)
        if not isinstance(layout, tuple):
            raise Unproven(f"{node} is no tensor")
        return layout

    def require_whole(self, dim: Dim, node: fx.Node) -> None:
        """The operation computes along a dimension, which must have no rows too many."""
        if self.is_padded(dim):
            raise Unproven(f"{node.target} computes along the padded dimension")

    def depends(self, value: Any) -> bool:
        """Whether a size or number is made of the symbol."""
        leaves = [
            size
            for leaf in pytree.tree_leaves(value)
            for size in (leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,))
        ]
        return any(
            self.symbol in expression(leaf).free_symbols for leaf in leaves if is_symbolic(leaf)
        )

    def natural(self, value: Any) -> Any:
        """The layout of what is not made of other values."""
        if isinstance(value, (tuple, list)):
            return [self.natural(one) for one in value]
        if not isinstance(value, torch.Tensor):
            return None
        return tuple(self._factors(expression(size)) for size in value.shape)

    def _factors(self, size: Any) -> Dim:
        if size == self.symbol or self.symbol not in size.free_symbols:
            return (size,)
        number, rest = size.as_coeff_Mul()
        known = rest.free_symbols if number == 1 else {*rest.free_symbols, NUMBER}
        factors = [number if one == NUMBER else one for one in self.order if one in known]
        if sympy.Mul(*factors) != size or not number.is_Integer:
            raise Unproven(f"a dimension of size {size}")
        return tuple(factors)

    # What rules ask for

    def mask(self, node: fx.Node, position: int, dims: set[int], fill: Fill) -> None:
        """Let the argument at ``position`` hold ``fill`` in the padded rows of these dimensions."""
        found = dims & self.padded(self.of(node.args[position]))
        if found:
            self.edit(node, partial(put_mask, position=position, dims=found, fill=fill))

    def number(self, node: fx.Node, position: int) -> None:
        """Let the argument at ``position``, a number made of sizes, be that of the wanted rows."""
        self.edit(node, partial(put_number, position=position))

    def edit(self, node: fx.Node, edit: Edit) -> None:
        """Let the graph be edited at a node."""
        self.edits.append((node, edit))

    def without_numbers(self, node: fx.Node) -> None:
        """No operand is a number made of the padded size."""
        if any(map(self.is_size, node.all_input_nodes)):
            raise Unproven(f"{node.target} computes with the size itself")

    def is_size(self, operand: Any) -> bool:
        """Whether an operand is a number made of the padded size."""
        known = isinstance(operand, fx.Node) and self.layouts[operand] is None
        return known and self.depends(operand.meta.get("val"))

    # One node

    def _call(self, node: fx.Node) -> Any:
        value = node.meta.get("val")
        if node.target is operator.getitem:
            source, index = node.args
            return self.layouts[source][index]  # type: ignore[index]
        if is_symbolic(value):
            return None
        if not self.depends(value) and not any(map(self._reaches, node.all_input_nodes)):
            return self.natural(value)
        if not isinstance(node.target, OpOverload):
            raise Unproven(f"nothing is known of {node.target}")
        found = RULES.get(f"aten.{name_of(node)}")
        if found is None and torch.Tag.nondeterministic_seeded in node.target.tags:
            raise Unproven(f"{node.target} draws other numbers for another size")
        if found is None and torch.Tag.pointwise in node.target.tags:
            found = padding_rows.pointwise
        if found is None:
            raise Unproven(f"nothing is known of {node.target}")
        return found(self, node)

    def _reaches(self, node: fx.Node) -> bool:
        layouts = self.layouts[node]
        if layouts is None:
            return self.depends(node.meta.get("val"))
        return self.symbol in pytree.tree_leaves(layouts)

    def _checked(self, node: fx.Node, layout: Any) -> Any:
        """``layout`` if its sizes are the result's, with dimensions that are not padded as one factor."""
        value = node.meta.get("val")
        if isinstance(value, (tuple, list)) and isinstance(layout, list):
            if len(value) != len(layout):
                raise Unproven(f"{node.target} gives {len(value)} results")
            return [self._fitted(node, *pair) for pair in zip(value, layout, strict=True)]
        return self._fitted(node, value, layout)

    def _fitted(self, node: fx.Node, value: Any, layout: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not isinstance(layout, tuple):
            return layout
        if len(layout) != value.dim():
            raise Unproven(f"{node.target} gives other dimensions than it was thought to")
        for dim, size in zip(layout, value.shape, strict=True):
            if any(one != self.symbol and self.symbol in one.free_symbols for one in dim):
                raise Unproven(f"a dimension of size {size}")
            if not same(sympy.prod(dim), expression(size)):
                raise Unproven(f"{node.target} gives a size {size} where {dim} was expected")
        return tuple(dim if self.is_padded(dim) else (sympy.prod(dim),) for dim in layout)


def prove(graph: fx.Graph, symbol: sympy.Symbol) -> Proof:
    """A proof for one order of the factors that an argument's dimension is made of; raises Unproven.

    Which order is meant does not matter: whatever rows a proof calls the wanted ones, the results'
    are made of the arguments' alone.
    """
    refused = None
    for order in _orders(graph, symbol):
        try:
            return Proof(graph, symbol, order)
        except Unproven as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _orders(graph: fx.Graph, symbol: sympy.Symbol) -> Iterator[tuple[Any, ...]]:
    """Orders of what shares a dimension with ``symbol``: first symbols as arguments have them."""
    sizes = [
        expression(size)
        for node in graph.find_nodes(op="placeholder")
        if isinstance(node.meta.get("val"), torch.Tensor)
        for size in node.meta["val"].shape
    ]
    composite = [size for size in sizes if size != symbol and symbol in size.free_symbols]
    shared = {symbol, *(other for size in composite for other in size.free_symbols)}
    ordered = list(dict.fromkeys(size for size in sizes if size in shared))
    ordered += sorted(shared.difference(ordered), key=str)
    if any(size.as_coeff_Mul()[0] != 1 for size in composite):
        ordered.insert(0, NUMBER)
    yield from islice(permutations(ordered), _MAX_ORDERS)
