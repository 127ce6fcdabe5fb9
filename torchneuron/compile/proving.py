"""What the rules of ``padding`` share: their table, layouts, and how they say that they prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload

from torchneuron.compile.captured import SYMBOLIC

if TYPE_CHECKING:
    from torchneuron.compile.padding import Proof

# Sizes whose product is the dimension's; one that is not padded is a single factor.
Dim = tuple[Any, ...]
Layout = tuple[Dim, ...]
Rule = Callable[["Proof", fx.Node], Any]

ONE: Dim = (sympy.Integer(1),)
RULES: dict[str, Rule] = {}


class Unproven(Exception):
    """Why a graph may not be padded."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of these operators of ATen, named without ``.default``."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[f"aten.{name}"] = function
        return function

    return register


def name_of(node: fx.Node) -> str:
    """The operator's name as ``rule`` takes it."""
    return str(node.target).removesuffix(".default").removeprefix("aten.")


def is_symbolic(value: Any) -> bool:
    """Whether a number is one that only a call tells."""
    return isinstance(value, SYMBOLIC)


def expression(size: Any) -> Any:
    """A size as sympy has it."""
    return size.node.expr if is_symbolic(size) else sympy.sympify(size)


def same(left: Any, right: Any) -> bool:
    """Whether two sizes are equal for all values of their symbols."""
    return bool(left == right or sympy.expand(left - right) == 0)


def argument(node: fx.Node, name: str) -> Any:
    """An argument of the operator by its name in the schema."""
    assert isinstance(node.target, OpOverload)
    for position, one in enumerate(node.target._schema.arguments):
        if one.name == name:
            given = node.args[position] if position < len(node.args) else one.default_value
            return node.kwargs.get(name, given)
    return None


def dims_of(node: fx.Node, rank: int) -> set[int]:
    """The dimensions that the operator computes along; all where it names none."""
    dims = argument(node, "dim")
    if dims is None:
        dims = argument(node, "dims")
    dims = dims if isinstance(dims, (tuple, list)) else [dims]
    if not dims or dims[0] is None:
        return set(range(rank))
    return {int(dim) % max(rank, 1) for dim in dims}


def around(layout: Layout, dims: Iterable[int], result: Sequence[Dim]) -> Layout:
    """``result`` with the rows of ``layout``, of which ``dims`` were dropped or have other sizes."""
    if len(result) == len(layout):
        return tuple(result[i] if i in dims else dim for i, dim in enumerate(layout))
    return tuple(dim for i, dim in enumerate(layout) if i not in dims)


def sizes_of(value: torch.Tensor) -> Layout:
    """Each dimension one factor."""
    return tuple((expression(size),) for size in value.shape)


def results_around(node: fx.Node, layout: Layout, dims: Iterable[int]) -> Any:
    """``around`` for each of the node's results."""
    value = node.meta["val"]
    if isinstance(value, (tuple, list)):
        return [around(layout, dims, sizes_of(one)) for one in value]
    return around(layout, dims, sizes_of(value))
