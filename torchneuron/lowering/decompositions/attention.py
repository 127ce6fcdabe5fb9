"""The fast path that nn.MultiheadAttention and nn.TransformerEncoderLayer take for inference.

Shapes: B batch, T tokens, D the model's size, H heads.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from torchneuron.lowering.registry import decomposition, shape_rule, use_stock_decomposition

use_stock_decomposition("aten._scaled_dot_product_flash_attention_for_cpu")

# What a mask's dimensions are: (T, T), (B, T), or those of the scores.
_OVER_QUERIES, _OVER_BATCH = 0, 1


def _masked(scores: Tensor, mask: Tensor, mask_type: int | None) -> Tensor:
    """``scores`` (B, H, T, T) with -inf where ``mask`` is true."""
    if mask_type == _OVER_QUERIES:
        mask = mask.reshape(1, 1, *mask.shape[-2:])
    elif mask_type == _OVER_BATCH:
        mask = mask.reshape(mask.shape[0], 1, 1, mask.shape[-1])
    return scores.masked_fill(mask.to(torch.bool), float("-inf"))


@shape_rule("aten._masked_softmax")
def _masked_softmax_shape(
    x: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None
) -> Tensor:
    return torch.empty_like(x)


@decomposition("aten._masked_softmax")
def masked_softmax(
    x: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None
) -> Tensor:
    if mask_type not in (_OVER_QUERIES, _OVER_BATCH):
        mask = mask.reshape(x.shape)
    return torch.softmax(_masked(x, mask, mask_type), -1 if dim is None else dim)


@shape_rule("aten._masked_softmax_backward")
def _masked_softmax_backward_shape(
    grad: Tensor, output: Tensor, mask: Tensor, dim: int | None = None
) -> Tensor:
    return torch.empty_like(grad)


@decomposition("aten._masked_softmax_backward")
def masked_softmax_backward(
    grad: Tensor, output: Tensor, mask: Tensor, dim: int | None = None
) -> Tensor:
    along = -1 if dim is None else dim
    hidden = mask.reshape(output.shape).to(torch.bool)
    product = (grad * output).masked_fill(hidden, 0)
    return (product - output * product.sum(along, keepdim=True)).masked_fill(hidden, 0)


@shape_rule("aten._transform_bias_rescale_qkv")
def _heads_shape(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    batch, tokens, width = qkv.shape
    shape = (batch, num_heads, tokens, width // 3 // num_heads)
    return qkv.new_empty(shape), qkv.new_empty(shape), qkv.new_empty(shape)


@decomposition("aten._transform_bias_rescale_qkv")
def transform_bias_rescale_qkv(
    qkv: Tensor, qkv_bias: Tensor, num_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(B, T, 3 D) to three of (B, H, T, D / H), the queries scaled."""
    query, key, value = (_heads(x, num_heads) for x in (qkv + qkv_bias).chunk(3, -1))
    return query / math.sqrt(query.shape[-1]), key, value


def _heads(x: Tensor, count: int) -> Tensor:
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, count, width // count).transpose(1, 2)


@shape_rule("aten._native_multi_head_attention")
def _attention_shapes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    # PyTorch's own rule gives an empty tensor where the CPU gives no weights.
    batch, tokens = query.shape[:2]
    heads = () if average_attn_weights else (num_head,)
    weights = query.new_empty((batch, *heads, tokens, key.shape[1]))
    return query.new_empty((batch, tokens, embed_dim)), weights if need_weights else None


@decomposition("aten._native_multi_head_attention")
def native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    weights, biases = qkv_weight.chunk(3, 0), qkv_bias.chunk(3, 0)
    q, k, v = (
        _heads(functional.linear(x, w, bias), num_head)
        for x, w, bias in zip((query, key, value), weights, biases, strict=True)
    )
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)
    if mask is not None:
        scores = _masked(scores, mask, mask_type)
    attention = torch.softmax(scores, -1)
    mixed = (attention @ v).transpose(1, 2).reshape(query.shape[0], query.shape[1], embed_dim)
    result = functional.linear(mixed, proj_weight, proj_bias)
    if not need_weights:
        return result, None
    return result, attention.mean(1) if average_attn_weights else attention


@decomposition("aten._transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    def attend(x: Tensor) -> Tensor:
        parameters = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        options = (mask, False, True, mask_type)
        return native_multi_head_attention(x, x, x, embed_dim, num_heads, *parameters, *options)[0]

    def feed_forward(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    def first_norm(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        middle = src + attend(first_norm(src))
        return middle + feed_forward(second_norm(middle))
    middle = first_norm(src + attend(src))
    return second_norm(middle + feed_forward(middle))
