"""Rules of operations that treat the padded dimension's rows one by one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import sympy
from torch import fx

from torchneuron.compile.masks import put_filled
from torchneuron.compile.proving import (
    ONE,
    RULES,
    Dim,
    Layout,
    Unproven,
    argument,
    around,
    dims_of,
    expression,
    name_of,
    results_around,
    rule,
    same,
    sizes_of,
)

if TYPE_CHECKING:
    from torchneuron.compile.padding import Proof


def pointwise(proof: Proof, node: fx.Node) -> Layout:
    """What computes each element of the same element of the operands."""
    for position, operand in enumerate(node.args):
        if proof.is_size(operand):
            proof.number(node, position)
    if any(map(proof.is_size, node.kwargs.values())):
        raise Unproven(f"{node.target} computes with the size itself")
    tensors = [proof.of(x) for x in node.all_input_nodes if proof.layouts[x] is not None]
    return broadcast(proof, node, tensors)


def broadcast(proof: Proof, node: fx.Node, tensors: Sequence[Layout]) -> Layout:
    """The layout of tensors with each other; a padded dimension meets only its like."""
    rank = max(map(len, tensors))
    result: list[Dim] = []
    for position in range(-rank, 0):
        dims = {layout[position] for layout in tensors if len(layout) >= -position} - {ONE}
        if len(dims) > 1 and any(map(proof.is_padded, dims)):
            raise Unproven(f"{node.target} combines dimensions that are padded in other ways")
        result.append(next(iter(dims)) if dims else ONE)
    return tuple(result)


for _name in ("clone", "detach", "alias", "_to_copy", "lift_fresh_copy", "where.self"):
    RULES[f"aten.{_name}"] = pointwise


@rule("zeros", "ones", "empty.memory_format", "zeros_like", "ones_like", "empty_like")
@rule("new_zeros", "new_ones", "new_empty")
def _filled(proof: Proof, node: fx.Node) -> Any:
    # A value that is the same everywhere has any layout: that of what it is like, if there is one.
    like = node.args[0] if name_of(node).endswith("_like") else None
    return proof.of(like) if like is not None else proof.natural(node.meta["val"])


@rule("full", "full_like", "new_full", "scalar_tensor")
def _full(proof: Proof, node: fx.Node) -> Any:
    place = {"scalar_tensor": 0, "new_full": 2}.get(name_of(node), 1)
    if proof.is_size(node.args[place]):
        proof.edit(node, partial(put_filled, position=place))
    return _filled(proof, node)


@rule("arange", "arange.start", "arange.start_step")
def _arange(proof: Proof, node: fx.Node) -> Layout:
    others = [x for i, x in enumerate(node.args) if i != (len(node.args) > 1)]
    if any(isinstance(x, fx.Node) for x in others):
        raise Unproven(f"{node.target} starts or steps by a size")
    layout = sizes_of(node.meta["val"])
    if layout != ((proof.symbol,),):
        raise Unproven(f"{node.target} counts rows that are padded")
    return layout


@rule("tril", "triu")
def _triangle(proof: Proof, node: fx.Node) -> Layout:
    """The diagonal goes through the same places at any size."""
    proof.without_numbers(node)
    layout = proof.of(node.args[0])
    if not all(map(proof.keeps_places, layout[-2:])):
        raise Unproven(f"{node.target} of rows that are padded")
    return layout


@rule("view", "reshape", "_unsafe_view", "_reshape_alias")
def _view(proof: Proof, node: fx.Node) -> Layout:
    left = [factor for dim in proof.of(node.args[0]) for factor in dim if factor != 1]
    result: list[Dim] = []
    for wanted in map(expression, node.meta["val"].shape):
        taken: list[Any] = []
        while not same(sympy.prod(taken), wanted):
            if not left:
                raise Unproven(f"{node.target} to sizes that mix padded rows with others")
            factor = left.pop(0)
            missing = wanted / sympy.prod(taken)
            if (inner := _split(factor, missing)) is not None:
                left.insert(0, inner)
                factor = missing
            taken.append(factor)
        result.append(tuple(taken) or ONE)
    return tuple(result)


def _split(factor: Any, missing: Any) -> Any:
    """What is left of a factor of which ``missing`` is taken; None if all of it is."""
    inner = factor / missing
    if factor == missing or not factor.free_symbols >= missing.free_symbols:
        return None
    whole = all(number.as_numer_denom()[1] == 1 for number in (missing, inner))
    return inner if whole else None


@rule("expand")
def _expand(proof: Proof, node: fx.Node) -> Layout:
    given, wanted = proof.of(node.args[0]), proof.natural(node.meta["val"])
    given = (ONE,) * (len(wanted) - len(given)) + given
    return tuple(w if g == ONE else g for g, w in zip(given, wanted, strict=True))


@rule("permute")
def _permute(proof: Proof, node: fx.Node) -> Layout:
    layout = proof.of(node.args[0])
    return tuple(layout[int(i)] for i in node.args[1])  # type: ignore[union-attr, arg-type]


@rule("transpose.int", "t")
def _transpose(proof: Proof, node: fx.Node) -> Layout:
    layout = list(proof.of(node.args[0]))
    a, b = node.args[1:] or (-2, -1)
    assert isinstance(a, int)
    assert isinstance(b, int)
    if len(layout) > 1:
        layout[a], layout[b] = layout[b], layout[a]
    return tuple(layout)


@rule("unsqueeze")
def _unsqueeze(proof: Proof, node: fx.Node) -> Layout:
    layout, place = list(proof.of(node.args[0])), node.args[1]
    assert isinstance(place, int)
    layout.insert(place if place >= 0 else place + len(layout) + 1, ONE)
    return tuple(layout)


_ALONG = [
    "var.correction",
    "std.correction",
    "sort",
    "topk",
    "split.Tensor",
    "split_with_sizes",
    "unbind.int",
    "squeeze.dim",
    "squeeze.dims",
    "flip",
    "glu",
]


@rule(*_ALONG)
def _along(proof: Proof, node: fx.Node) -> Any:
    """What computes along some dimensions, which have no rows too many, and treats the others as rows."""
    proof.without_numbers(node)
    layout = proof.of(node.args[0])
    dims = dims_of(node, len(layout))
    for dim in dims:
        proof.require_whole(layout[dim], node)
    return results_around(node, layout, dims)


@rule("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
def _prefix(proof: Proof, node: fx.Node) -> Any:
    """An element is made of those before it, none of which is padded."""
    layout = proof.of(node.args[0])
    (dim,) = dims_of(node, len(layout))
    if layout and not proof.keeps_places(layout[dim]):
        raise Unproven(f"{node.target} computes along the padded dimension")
    several = isinstance(node.meta["val"], (tuple, list))
    return [layout, layout] if several else layout


# Parts of a dimension


@rule("select.int")
def _select(proof: Proof, node: fx.Node) -> Any:
    proof.without_numbers(node)
    layout = proof.of(node.args[0])
    dims = dims_of(node, len(layout))
    (dim,) = dims
    _require_start(proof, layout[dim], node, node.args[2])
    return results_around(node, layout, dims)


@rule("slice.Tensor")
def _slice(proof: Proof, node: fx.Node) -> Layout:
    layout = proof.of(node.args[0])
    (dim,) = dims_of(node, len(layout))
    start, end, step = (argument(node, name) for name in ("start", "end", "step"))
    start = start or 0
    if _is_whole(proof, layout[dim], (start, end, step)):
        return layout
    if proof.is_size(end):
        _require_up_to_the_size(proof, layout[dim], node, (start, end, step))
        return around(layout, {dim}, [(proof.symbol,)] * len(layout))
    proof.without_numbers(node)
    _require_start(proof, layout[dim], node, start, end, step)
    return around(layout, {dim}, sizes_of(node.meta["val"]))


@rule("slice_backward")
def _slice_backward(proof: Proof, node: fx.Node) -> Layout:
    layout = proof.of(node.args[0])
    dim = int(argument(node, "dim")) % len(layout)
    start, end, step = (argument(node, name) for name in ("start", "end", "step"))
    whole = sizes_of(node.meta["val"])[dim]
    if _is_whole(proof, whole, (start, end, step)):
        return layout
    if proof.is_size(end):
        _require_up_to_the_size(proof, whole, node, (start, end, step))
        proof.mask(node, 0, {dim}, 0)
    else:
        proof.require_whole(layout[dim], node)
        _require_start(proof, whole, node, start, end, step)
    return around(layout, {dim}, sizes_of(node.meta["val"]))


@rule("select_backward")
def _select_backward(proof: Proof, node: fx.Node) -> Layout:
    layout, sizes = list(proof.of(node.args[0])), sizes_of(node.meta["val"])
    dim = int(argument(node, "dim")) % len(sizes)
    _require_start(proof, sizes[dim], node, argument(node, "index"))
    layout.insert(dim, sizes[dim])
    return tuple(layout)


def _is_whole(proof: Proof, dim: Dim, places: tuple[Any, Any, Any]) -> bool:
    """``x[:]``, which TorchDynamo writes with the largest number as its end, and ``x[:len(x)]``."""
    start, end, step = places
    if proof.is_size(end):
        end = None if dim == (expression(end.meta["val"]),) == (proof.symbol,) else end
    return start == 0 and end in (None, sys.maxsize) and step == 1


def _require_start(proof: Proof, dim: Dim, node: fx.Node, *places: Any) -> None:
    """Places are numbers counted from the start, so that in a padded dimension they are wanted rows."""
    if not proof.is_padded(dim):
        return
    if dim != (proof.symbol,) or not all(
        isinstance(place, int) and 0 <= place < sys.maxsize for place in places
    ):
        raise Unproven(f"{node.target} takes rows by their distance to the end")


def _require_up_to_the_size(
    proof: Proof, dim: Dim, node: fx.Node, places: tuple[Any, Any, Any]
) -> None:
    """The first rows of a dimension, as many as the padded size, which it must have."""
    start, end, step = places
    size = expression(end.meta["val"])
    if start != 0 or step != 1 or size != proof.symbol or proof.is_padded(dim):
        raise Unproven(f"{node.target} computes with the size itself")
    proof.bounds.append(sympy.prod(dim))


# Others


@rule("embedding")
def _embedding(proof: Proof, node: fx.Node) -> Layout:
    weight, indices = (proof.of(x) for x in node.args[:2])
    for dim in weight:
        proof.require_whole(dim, node)
    return (*indices, weight[1])


@rule("gather")
def _gather(proof: Proof, node: fx.Node) -> Layout:
    x, index = proof.of(node.args[0]), proof.of(node.args[2])
    dims = dims_of(node, len(x))
    for place, pair in enumerate(zip(x, index, strict=True)):
        if place in dims:
            for dim in pair:
                proof.require_whole(dim, node)
        elif pair[0] != pair[1] and any(map(proof.is_padded, pair)):
            raise Unproven(f"{node.target} combines dimensions that are padded in other ways")
    return index


@rule("cat")
def _cat(proof: Proof, node: fx.Node) -> Layout:
    tensors = [proof.of(x) for x in node.args[0]]  # type: ignore[union-attr]
    if len({len(x) for x in tensors}) > 1:
        raise Unproven(f"{node.target} of tensors with other dimensions")
    (dim,) = dims_of(node, len(tensors[0]))
    for layout in tensors:
        proof.require_whole(layout[dim], node)
    rest = broadcast(proof, node, [(*x[:dim], ONE, *x[dim + 1 :]) for x in tensors])
    return around(rest, {dim}, sizes_of(node.meta["val"]))


@rule("constant_pad_nd")
def _constant_pad(proof: Proof, node: fx.Node) -> Layout:
    proof.without_numbers(node)
    layout = proof.of(node.args[0])
    ends = len(node.args[1]) // 2  # type: ignore[arg-type]
    dims = set(range(len(layout) - ends, len(layout)))
    for dim in dims:
        proof.require_whole(layout[dim], node)
    return around(layout, dims, sizes_of(node.meta["val"]))


@rule("native_layer_norm", "_fused_rms_norm")
def _layer_norm(proof: Proof, node: fx.Node) -> Any:
    proof.without_numbers(node)
    layout = proof.of(node.args[0])
    count = len(node.args[1])  # type: ignore[arg-type]
    for dim in layout[-count:]:
        proof.require_whole(dim, node)
    return results_around(node, layout, set(range(len(layout) - count, len(layout))))


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
_BATCHED_BACKWARD = [
    "max_pool2d_with_indices_backward",
    "avg_pool2d_backward",
    "_adaptive_avg_pool2d_backward",
    "upsample_nearest2d_backward",
    "upsample_bilinear2d_backward",
]


@rule(*_BATCHED)
def _batched(proof: Proof, node: fx.Node) -> Any:
    """What treats the elements of a batch, the first dimension, one by one."""
    layout, *others = (proof.of(x) for x in node.all_input_nodes if proof.layouts[x] is not None)
    for dim in (*layout[1:], *(dim for other in others for dim in other)):
        proof.require_whole(dim, node)
    if name_of(node) == "convolution" and node.args[6]:
        raise Unproven(f"{node.target} transposed")
    value = node.meta["val"]
    results = value if isinstance(value, (tuple, list)) else [value]
    laid = []
    for sizes in map(sizes_of, results):
        batched = sizes and same(sizes[0][0], sympy.prod(layout[0]))
        laid.append((layout[0], *sizes[1:]) if batched else sizes)
    return laid if isinstance(value, (tuple, list)) else laid[0]


@rule(*_BATCHED_BACKWARD)
def _batched_backward(proof: Proof, node: fx.Node) -> Layout:
    """The same of gradients: all operands have the batch."""
    layouts = [proof.of(x) for x in node.all_input_nodes if proof.layouts[x] is not None]
    for layout in layouts:
        if layout[0] != layouts[0][0]:
            raise Unproven(f"{node.target} of batches that are padded in other ways")
        for dim in layout[1:]:
            proof.require_whole(dim, node)
    return (layouts[0][0], *sizes_of(node.meta["val"])[1:])


@rule("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(proof: Proof, node: fx.Node) -> Layout:
    """A row's gradient is made of its own target; the gradient of the loss is a number, or has rows."""
    gradient, scores, target = (proof.of(x) for x in node.args[:3])
    rows = (*scores[:-3], *scores[-2:]) if len(scores) > 2 else scores[:-1]
    if rows != target or gradient not in ((), rows):
        raise Unproven(f"{node.target} of rows that are padded in other ways")
    proof.require_whole(scores[1 if len(scores) > 1 else 0], node)
    return scores


@rule("stack")
def _stack(proof: Proof, node: fx.Node) -> Layout:
    tensors = [proof.of(x) for x in node.args[0]]  # type: ignore[union-attr]
    joined = list(broadcast(proof, node, tensors))
    (dim,) = dims_of(node, len(joined) + 1)
    joined.insert(dim, (sympy.Integer(len(tensors)),))
    return tuple(joined)
