"""Proves that a symbolic graph may run at a larger size: rows that are padded in never reach the others.

For one symbol, every value of the graph gets a layout: of which factors each of its dimensions is
made. A dimension with the symbol among its factors holds the wanted rows and others after them. Each
operation has a rule that gives its result's layout, or raises ``Unproven``: a row of the result must
be made of the same rows of the operands alone. Operations without a rule, sums over padded rows, random
numbers and numbers computed of the size prove nothing.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

# Sizes whose product is the dimension's; one that is not padded is a single factor.
Dim = tuple[Any, ...]
Layout = tuple[Dim, ...]
Rule = Callable[["Proof", fx.Node], Any]

_rules: dict[str, Rule] = {}


class Unproven(Exception):
    """Why a graph may not be padded."""


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            _rules[f"aten.{name}"] = function
        return function

    return register


class Proof:
    """The layouts of a graph's values for ``symbol``; making one raises Unproven."""

    def __init__(self, graph: fx.Graph, symbol: sympy.Symbol) -> None:
        """``graph`` is functional; its nodes say what they give, in symbols."""
        self.symbol = symbol
        self.layouts: dict[fx.Node, Any] = {}
        for node in graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.layouts[node] = self._natural(node.meta.get("val"))
            elif node.op == "call_function":
                self.layouts[node] = self._checked(node, self._call(node))

    def is_padded(self, dim: Dim) -> bool:
        """Whether the dimension holds rows that nobody wants."""
        return self.symbol in dim

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
        return any(self.symbol in expression(leaf).free_symbols for leaf in leaves if _is_sym(leaf))

    def _natural(self, value: Any) -> Any:
        """Each dimension one factor."""
        if isinstance(value, (tuple, list)):
            return [self._natural(one) for one in value]
        if not isinstance(value, torch.Tensor):
            return None
        return tuple(self._single(size) for size in value.shape)

    def _single(self, size: Any) -> Dim:
        found = expression(size)
        if found != self.symbol and self.symbol in found.free_symbols:
            raise Unproven(f"a dimension of size {found}")
        return (found,)

    def _call(self, node: fx.Node) -> Any:
        value = node.meta.get("val")
        if node.target is operator.getitem:
            source, index = node.args
            return self.layouts[source][index]  # type: ignore[index]
        if _is_sym(value):
            return None
        if not self.depends(value) and not any(map(self._reaches, node.all_input_nodes)):
            return self._natural(value)
        if not isinstance(node.target, OpOverload):
            raise Unproven(f"nothing is known of {node.target}")
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            raise Unproven(f"{node.target} draws other numbers for another size")
        rule = _rules.get(str(node.target).removesuffix(".default"))
        if rule is None and torch.Tag.pointwise in node.target.tags:
            rule = _pointwise
        if rule is None:
            raise Unproven(f"nothing is known of {node.target}")
        return rule(self, node)

    def _reaches(self, node: fx.Node) -> bool:
        layouts = self.layouts[node]
        if layouts is None:
            return self.depends(node.meta.get("val"))
        flat = pytree.tree_leaves(layouts)
        return self.symbol in flat

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
            if sympy.expand(sympy.prod(dim) - expression(size)) != 0:
                raise Unproven(f"{node.target} gives a size {size} where {dim} was expected")
        return tuple(dim if self.is_padded(dim) else (sympy.prod(dim),) for dim in layout)

    def meta(self, node: fx.Node, index: int | None = None) -> Layout:
        """The result's sizes, one factor each."""
        value = node.meta["val"] if index is None else node.meta["val"][index]
        natural: Layout = self._natural(value)
        return natural

    def without_numbers(self, node: fx.Node) -> None:
        """No operand is a number made of the padded size."""
        for operand in node.all_input_nodes:
            if self.layouts[operand] is None and self.depends(operand.meta.get("val")):
                raise Unproven(f"{node.target} computes with the size itself")


def _is_sym(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def expression(size: Any) -> Any:
    """A size as sympy has it."""
    return size.node.expr if _is_sym(size) else sympy.sympify(size)


# Rules


def _pointwise(proof: Proof, node: fx.Node) -> Layout:
    proof.without_numbers(node)
    tensors = [proof.of(x) for x in node.all_input_nodes if proof.layouts[x] is not None]
    return _broadcast(proof, node, tensors)


def _broadcast(proof: Proof, node: fx.Node, tensors: Sequence[Layout]) -> Layout:
    rank = max(map(len, tensors))
    result: list[Dim] = []
    for position in range(-rank, 0):
        dims = {layout[position] for layout in tensors if len(layout) >= -position} - {(1,)}
        if len(dims) > 1 and any(map(proof.is_padded, dims)):
            raise Unproven(f"{node.target} combines dimensions that are padded in other ways")
        result.append(next(iter(dims)) if dims else (sympy.Integer(1),))
    return tuple(result)


for _name in ("clone", "detach", "alias", "_to_copy", "lift_fresh_copy", "where.self"):
    _rules[f"aten.{_name}"] = _pointwise


@_rule("zeros", "ones", "empty.memory_format", "zeros_like", "ones_like", "empty_like")
@_rule("new_zeros", "new_ones", "new_empty")
def _filled(proof: Proof, node: fx.Node) -> Layout:
    return proof.meta(node)


@_rule("full", "full_like")
def _full(proof: Proof, node: fx.Node) -> Layout:
    if isinstance(node.args[1], fx.Node):
        raise Unproven(f"{node.target} fills with a number that is computed")
    return proof.meta(node)


@_rule("arange", "arange.start", "arange.start_step")
def _arange(proof: Proof, node: fx.Node) -> Layout:
    others = [x for i, x in enumerate(node.args) if i != (len(node.args) > 1)]
    if any(isinstance(x, fx.Node) for x in others):
        raise Unproven(f"{node.target} starts or steps by a size")
    return proof.meta(node)


@_rule("view", "reshape", "_unsafe_view", "_reshape_alias")
def _view(proof: Proof, node: fx.Node) -> Layout:
    one = sympy.Integer(1)
    left = [factor for dim in proof.of(node.args[0]) for factor in dim if factor != one]
    result: list[Dim] = []
    for wanted in map(expression, node.meta["val"].shape):
        taken: list[Any] = []
        while sympy.expand(sympy.prod(taken) - wanted) != 0:
            if not left:
                raise Unproven(f"{node.target} to sizes that mix padded rows with others")
            missing = wanted / sympy.prod(taken)
            factor = left.pop(0)
            if factor.is_Integer and missing.is_Integer and 0 < missing < factor:
                if factor % missing:
                    raise Unproven(f"{node.target} to sizes that mix padded rows with others")
                left.insert(0, factor / missing)
                factor = missing
            taken.append(factor)
        result.append(tuple(taken) or (one,))
    return tuple(result)


@_rule("expand")
def _expand(proof: Proof, node: fx.Node) -> Layout:
    given, wanted = proof.of(node.args[0]), proof.meta(node)
    given = ((sympy.Integer(1),),) * (len(wanted) - len(given)) + given
    return tuple(w if g == (1,) else g for g, w in zip(given, wanted, strict=True))


@_rule("permute")
def _permute(proof: Proof, node: fx.Node) -> Layout:
    layout = proof.of(node.args[0])
    return tuple(layout[int(i)] for i in node.args[1])  # type: ignore[union-attr, arg-type]


@_rule("transpose.int", "t")
def _transpose(proof: Proof, node: fx.Node) -> Layout:
    layout = list(proof.of(node.args[0]))
    a, b = node.args[1:] or (-2, -1)
    assert isinstance(a, int)
    assert isinstance(b, int)
    if len(layout) > 1:
        layout[a], layout[b] = layout[b], layout[a]
    return tuple(layout)


@_rule("unsqueeze")
def _unsqueeze(proof: Proof, node: fx.Node) -> Layout:
    layout, place = list(proof.of(node.args[0])), node.args[1]
    assert isinstance(place, int)
    layout.insert(place if place >= 0 else place + len(layout) + 1, (sympy.Integer(1),))
    return tuple(layout)


_ALONG = [
    "sum.dim_IntList",
    "mean.dim",
    "amax",
    "amin",
    "var.correction",
    "std.correction",
    "any.dim",
    "any.dims",
    "all.dim",
    "all.dims",
    "argmax",
    "argmin",
    "logsumexp",
    "prod.dim_int",
    "max.dim",
    "min.dim",
    "cumsum",
    "cumprod",
    "_softmax",
    "_log_softmax",
    "sort",
    "topk",
    "select.int",
    "slice.Tensor",
    "split.Tensor",
    "split_with_sizes",
    "unbind.int",
    "squeeze.dim",
    "squeeze.dims",
    "flip",
    "glu",
]


@_rule(*_ALONG)
def _along(proof: Proof, node: fx.Node) -> Any:
    """What computes along some dimensions and treats the others as rows."""
    proof.without_numbers(node)
    assert isinstance(node.target, OpOverload)
    layout = proof.of(node.args[0])
    dims = _dims_argument(node, len(layout))
    if _is_whole_slice(node):
        return layout
    for dim in dims:
        proof.require_whole(layout[dim], node)
    value = node.meta["val"]
    results = value if isinstance(value, (tuple, list)) else [value]
    laid = [_around(layout, dims, [(expression(s),) for s in one.shape]) for one in results]
    return laid if isinstance(value, (tuple, list)) else laid[0]


def _is_whole_slice(node: fx.Node) -> bool:
    """``x[:]``, which TorchDynamo writes with the largest number as its end."""
    start, end, step = (*node.args[2:], *(None,) * 3)[:3]
    whole = start in (0, None) and end in (None, sys.maxsize) and step in (1, None)
    return node.target is torch.ops.aten.slice.Tensor and whole


def _dims_argument(node: fx.Node, rank: int) -> set[int]:
    assert isinstance(node.target, OpOverload)
    default: Any = None
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name in ("dim", "dims"):
            default = argument.default_value
            if position < len(node.args):
                default = node.args[position]
            default = node.kwargs.get(argument.name, default)
    dims = default if isinstance(default, (tuple, list)) else [default]
    if not dims or dims[0] is None:
        return set(range(rank))
    return {int(dim) % rank for dim in dims}


def _around(layout: Layout, dims: set[int], result: Sequence[Dim]) -> Layout:
    """``result`` with the rows of ``layout``, of which ``dims`` were dropped or have other sizes."""
    if len(result) == len(layout):
        return tuple(result[i] if i in dims else dim for i, dim in enumerate(layout))
    return tuple(dim for i, dim in enumerate(layout) if i not in dims)


@_rule("mm", "bmm")
def _matmul(proof: Proof, node: fx.Node) -> Layout:
    left, right = proof.of(node.args[0]), proof.of(node.args[1])
    for dim in (left[-1], right[-2]):
        proof.require_whole(dim, node)
    if left[:-2] != right[:-2]:
        raise Unproven(f"{node.target} of batches that are padded in other ways")
    return (*left[:-1], right[-1])


@_rule("addmm", "baddbmm")
def _addmm(proof: Proof, node: fx.Node) -> Layout:
    proof.without_numbers(node)
    added, left, right = (proof.of(x) for x in node.args[:3])
    for dim in (left[-1], right[-2]):
        proof.require_whole(dim, node)
    if left[:-2] != right[:-2]:
        raise Unproven(f"{node.target} of batches that are padded in other ways")
    return _broadcast(proof, node, [added, (*left[:-1], right[-1])])


@_rule("embedding")
def _embedding(proof: Proof, node: fx.Node) -> Layout:
    weight, indices = (proof.of(x) for x in node.args[:2])
    for dim in weight:
        proof.require_whole(dim, node)
    return (*indices, weight[1])


@_rule("cat", "stack")
def _cat(proof: Proof, node: fx.Node) -> Layout:
    tensors = [proof.of(x) for x in node.args[0]]  # type: ignore[union-attr]
    if str(node.target).startswith("aten.stack") or len({len(x) for x in tensors}) > 1:
        raise Unproven(f"{node.target} of tensors with other dimensions")
    (dim,) = _dims_argument(node, len(tensors[0]))
    for layout in tensors:
        proof.require_whole(layout[dim], node)
    rest = _broadcast(
        proof, node, [(*x[:dim], (sympy.Integer(1),), *x[dim + 1 :]) for x in tensors]
    )
    return _around(rest, {dim}, proof.meta(node))


@_rule("native_layer_norm", "_fused_rms_norm")
def _layer_norm(proof: Proof, node: fx.Node) -> list[Any]:
    proof.without_numbers(node)
    layout = proof.of(node.args[0])
    count = len(node.args[1])  # type: ignore[arg-type]
    for dim in layout[-count:]:
        proof.require_whole(dim, node)
    dims = set(range(len(layout) - count, len(layout)))
    return [
        _around(layout, dims, [(expression(s),) for s in one.shape]) for one in node.meta["val"]
    ]


_BATCHED = [
    "convolution",
    "native_group_norm",
    "_native_batch_norm_legit_no_training",
    "max_pool2d_with_indices",
    "avg_pool2d",
    "_adaptive_avg_pool2d",
    "upsample_nearest2d",
    "upsample_bilinear2d",
]


@_rule(*_BATCHED)
def _batched(proof: Proof, node: fx.Node) -> Any:
    """What treats the elements of a batch, the first dimension, one by one."""
    layout, *others = (proof.of(x) for x in node.all_input_nodes if proof.layouts[x] is not None)
    for dim in (*layout[1:], *(dim for other in others for dim in other)):
        proof.require_whole(dim, node)
    if str(node.target) == "aten.convolution.default" and node.args[6]:
        raise Unproven(f"{node.target} transposed")
    value = node.meta["val"]
    results = value if isinstance(value, (tuple, list)) else [value]
    laid = []
    for one in results:
        sizes = tuple((expression(size),) for size in one.shape)
        batched = sizes and sympy.expand(sizes[0][0] - sympy.prod(layout[0])) == 0
        laid.append((layout[0], *sizes[1:]) if batched else sizes)
    return laid if isinstance(value, (tuple, list)) else laid[0]
