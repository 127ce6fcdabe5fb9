"""Rules of operations that compute along the padded dimension, whose rows a neutral element replaces."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import fx

from torchneuron.compile.masks import Fill, put_bias, put_mean
from torchneuron.compile.padding_rows import broadcast
from torchneuron.compile.proving import (
    Layout,
    Unproven,
    argument,
    dims_of,
    name_of,
    results_around,
    rule,
    sizes_of,
)

if TYPE_CHECKING:
    from torchneuron.compile.padding import Proof

_NEUTRAL: dict[str, Fill] = {
    "sum": 0,
    "sum.dim_IntList": 0,
    "prod": 1,
    "prod.dim_int": 1,
    "max": "lowest",
    "amax": "lowest",
    "min": "highest",
    "amin": "highest",
    "any": 0,
    "any.dim": 0,
    "any.dims": 0,
    "all": 1,
    "all.dim": 1,
    "all.dims": 1,
    "logsumexp": "lowest",
}
_NEUTRAL_OF_PLACES: dict[str, Fill] = {
    "max.dim": "lowest",
    "argmax": "lowest",
    "min.dim": "highest",
    "argmin": "highest",
}


@rule(*_NEUTRAL)
def _reduction(proof: Proof, node: fx.Node) -> Any:
    layout = proof.of(node.args[0])
    dims = dims_of(node, len(layout))
    proof.mask(node, 0, dims, _NEUTRAL[name_of(node)])
    return results_around(node, layout, dims)


@rule(*_NEUTRAL_OF_PLACES)
def _place(proof: Proof, node: fx.Node) -> Any:
    """The same where a row's place is a result: it must be the place that it had."""
    layout = proof.of(node.args[0])
    dims = dims_of(node, len(layout))
    if dims & proof.padded(layout):
        # Without a dimension the place is one of the flattened operand.
        if len(dims) > 1 or not all(proof.keeps_places(layout[dim]) for dim in dims):
            raise Unproven(f"{node.target} finds places of rows that are padded")
        proof.mask(node, 0, dims, _NEUTRAL_OF_PLACES[name_of(node)])
    return results_around(node, layout, dims)


@rule("mean", "mean.dim")
def _mean(proof: Proof, node: fx.Node) -> Layout:
    layout = proof.of(node.args[0])
    dims = dims_of(node, len(layout))
    if dims & proof.padded(layout):
        proof.edit(node, partial(put_mean, dims=dims))
    found: Layout = results_around(node, layout, dims)
    return found


@rule("linalg_vector_norm")
def _norm(proof: Proof, node: fx.Node) -> Layout:
    layout = proof.of(node.args[0])
    dims = dims_of(node, len(layout))
    order = argument(node, "ord")
    if not isinstance(order, (int, float)) or order < 0:
        raise Unproven(f"{node.target} of order {order}")
    proof.mask(node, 0, dims, 0)
    found: Layout = results_around(node, layout, dims)
    return found


@rule("_softmax", "_log_softmax", "_safe_softmax")
def _softmax(proof: Proof, node: fx.Node) -> Layout:
    layout = proof.of(node.args[0])
    proof.mask(node, 0, dims_of(node, len(layout)), "lowest")
    return layout


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def _softmax_backward(proof: Proof, node: fx.Node) -> Layout:
    layout = broadcast(proof, node, [proof.of(x) for x in node.args[:2]])
    dims = dims_of(node, len(layout))
    for operand in (0, 1):
        proof.mask(node, operand, dims, 0)
    return layout


# Products


@rule("mm", "bmm")
def _matmul(proof: Proof, node: fx.Node) -> Layout:
    return _product(proof, node, 0, 1)


@rule("addmm", "baddbmm")
def _addmm(proof: Proof, node: fx.Node) -> Layout:
    proof.without_numbers(node)
    return broadcast(proof, node, [proof.of(node.args[0]), _product(proof, node, 1, 2)])


def _product(proof: Proof, node: fx.Node, first: int, second: int) -> Layout:
    left, right = proof.of(node.args[first]), proof.of(node.args[second])
    if left[:-2] != right[:-2]:
        raise Unproven(f"{node.target} of batches that are padded in other ways")
    if left[-1] != right[-2] and any(map(proof.is_padded, (left[-1], right[-2]))):
        raise Unproven(f"{node.target} of rows that are padded in other ways")
    # 0 times what a padded row holds, which may be NaN, is not 0.
    proof.mask(node, first, {len(left) - 1}, 0)
    proof.mask(node, second, {len(right) - 2}, 0)
    return (*left[:-1], right[-1])


@rule("_scaled_dot_product_fused_attention_overrideable")
def _attention(proof: Proof, node: fx.Node) -> list[Any]:
    """``(batch, heads, length, size)`` each; a padded key must not be seen, and a padded query sees any."""
    query, key, value = (proof.of(x) for x in node.args[:3])
    bias, dropout, causal = (argument(node, x) for x in ("attn_bias", "dropout_p", "is_causal"))
    if dropout != 0 or any(user.args[1] not in (0, 1) for user in node.users):
        raise Unproven(f"{node.target} with dropout")
    # Of heads there may be fewer for keys than for queries.
    apart = [pair for pair in zip(query[:2], key[:2], strict=True) if pair[0] != pair[1]]
    if len(query) != 4 or key[:3] != value[:3] or any(proof.padded(pair) for pair in apart):
        raise Unproven(f"{node.target} of operands that are padded in other ways")
    for dim in (query[3], key[3], value[3]):
        proof.require_whole(dim, node)
    if causal and not (proof.keeps_places(query[2]) and proof.keeps_places(key[2])):
        raise Unproven(f"{node.target} of rows that are padded")
    result = (*query[:3], value[3])
    if bias is not None:
        broadcast(proof, node, [(*query[:3], key[2]), proof.of(bias)])
    if proof.is_padded(key[2]):
        for operand in (1, 2):
            proof.mask(node, operand, {2}, 0)
        # A query sees the keys up to its own place.
        if not (causal and query[2] == key[2]):
            if bias is not None and proof.of(bias)[-1] != key[2]:
                raise Unproven(f"{node.target} with a mask that is one for all keys")
            proof.edit(node, partial(put_bias, bias=bias, keys=key[2]))
    others = node.meta["val"][2:]
    return [result, query[:3], *(sizes_of(x) if hasattr(x, "shape") else None for x in others)]


# Gradients of weights


@rule("embedding_dense_backward")
def _embedding_backward(proof: Proof, node: fx.Node) -> Layout:
    gradient, indices = (proof.of(x) for x in node.args[:2])
    proof.require_whole(gradient[-1], node)
    if gradient[:-1] != indices or node.args[4]:
        raise Unproven(f"{node.target} of rows that are padded in other ways")
    for operand in (0, 1):
        proof.mask(node, operand, proof.padded(indices), 0)
    return sizes_of(node.meta["val"])


_NORM_OPERANDS = {
    "native_layer_norm_backward": (0, 1, 3, 4),
    "_fused_rms_norm_backward": (0, 1, 3),
    "native_group_norm_backward": (0, 1, 2, 3),
    "convolution_backward": (0, 1),
}


@rule(*_NORM_OPERANDS)
def _weights_backward(proof: Proof, node: fx.Node) -> list[Any]:
    """Gradients of the operand, row by row, and of weights, which are sums over the rows."""
    operands = _NORM_OPERANDS[name_of(node)]
    layouts = [proof.of(node.args[place]) for place in operands]
    given = proof.of(node.args[1])
    norm = argument(node, "normalized_shape")
    rows = len(given) - len(norm) if norm is not None else 1
    for layout in layouts:
        if layout[:rows] != given[:rows]:
            raise Unproven(f"{node.target} of rows that are padded in other ways")
        for dim in layout[rows:]:
            proof.require_whole(dim, node)
    for operand in operands:
        proof.mask(node, operand, set(range(rows)), 0)
    values = node.meta["val"]
    return [given, *(sizes_of(x) if x is not None else None for x in values[1:])]


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(proof: Proof, node: fx.Node) -> list[Any]:
    """A target that is ignored adds nothing, neither to the loss nor to the weight of all."""
    scores, target = proof.of(node.args[0]), proof.of(node.args[1])
    classes = 1 if len(scores) > 1 else 0
    rows = (*scores[:classes], *scores[classes + 1 :])
    proof.require_whole(scores[classes], node)
    if rows != target:
        raise Unproven(f"{node.target} of rows that are padded in other ways")
    proof.mask(node, 0, proof.padded(scores), 0)
    proof.mask(node, 1, proof.padded(target), argument(node, "ignore_index"))
    loss = node.meta["val"][0]
    return [target if loss.dim() else (), ()]
