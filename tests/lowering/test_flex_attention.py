"""`flex_attention` against the formula, forward and backward."""

import math

import pytest
import torch
from functorch.compile import aot_function
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.lowering.graphs import Recorder, check, gradients, leaves

B, H, G, Q, K, D, E = 2, 4, 2, 8, 16, 4, 3


def score_mod(score, b, h, q, k, bias, factor):
    # A buffer read by index, one used whole, and indices as numbers.
    return score * factor + bias[h, q] - (q - k).abs() * 0.1 + torch.where(b > 0, 0.5, -0.5)


def mask_mod(b, h, q, k, lengths):
    return (q >= k - 3) & (k < lengths[b])


def formula(q, k, v, bias, factor, lengths):
    k, v = (x.expand(B, -1, -1, -1).repeat_interleave(G, 1) for x in (k, v))
    scores = q.float() @ k.float().transpose(-2, -1) * 0.5
    batch, queries, keys = torch.arange(B), torch.arange(Q)[:, None], torch.arange(K)
    scores = scores * factor + bias[:, :, None] - (queries - keys).abs() * 0.1
    scores = scores + torch.where(batch > 0, 0.5, -0.5)[:, None, None, None]
    allowed = (queries >= keys - 3) & (keys < lengths[:, None, None, None])
    scores = scores.masked_fill(~allowed, -math.inf)
    empty = ~allowed.any(-1, keepdim=True)
    weights = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    return weights.to(q.dtype) @ v, scores.logsumexp(-1) / math.log(2)


def block_mask():
    mask = create_block_mask(
        lambda b, h, q, k: q >= k, B=B, H=None, Q_LEN=Q, KV_LEN=K, device="cpu", BLOCK_SIZE=8
    ).as_tuple()
    return (*mask[:-1], mask_mod)


MASK = block_mask()
TABLES = [part for part in MASK if isinstance(part, torch.Tensor)]


def operator(q, k, v, bias, factor, lengths, *tables):
    remaining = iter(tables)
    mask = tuple(next(remaining) if isinstance(x, torch.Tensor) else x for x in MASK)
    out, logsumexp, _ = torch.ops.higher_order.flex_attention(
        q, k, v, score_mod, mask, 0.5, {}, (bias, factor), (lengths,)
    )
    return out, logsumexp


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [B, 1], ids=["batch", "shared"])
def test_forward_and_backward(dtype, batch):
    generator = torch.Generator().manual_seed(0)

    def make(*shape, dtype=dtype):
        return torch.randn(shape, generator=generator).to(dtype).requires_grad_()

    q, k, v = make(B, H, Q, D), make(batch, H // G, K, D), make(batch, H // G, K, E)
    bias, factor = make(H, Q, dtype=torch.float32), make(dtype=torch.float32)
    # The second sequence has no keys: its rows are empty.
    inputs = (q, k, v, bias, factor, torch.tensor([K - 3, 0]))
    expected = formula(*inputs)
    recorder = Recorder()
    compiled = aot_function(operator, fw_compiler=recorder.compile, bw_compiler=recorder.compile)
    result = compiled(*inputs, *TABLES)
    # Rounding to bfloat16 happens in other places.
    tolerances = {} if dtype is torch.float32 else {"rtol": 0.05, "atol": 0.05}
    torch.testing.assert_close(result, expected, **tolerances)
    wanted = leaves(inputs)
    torch.testing.assert_close(
        gradients(leaves(result)[:1], wanted), gradients(leaves(expected)[:1], wanted), **tolerances
    )
    assert {"flex_attention", "flex_attention_backward"} <= recorder.targets()


def test_through_dynamo_with_gradient_free_inputs():
    bias = torch.randn(H, Q)
    mask = create_block_mask(
        lambda b, h, q, k: q >= k, B=B, H=H, Q_LEN=Q, KV_LEN=Q, device="cpu", BLOCK_SIZE=8
    )

    def function(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, q, k: s + bias[h, q], mask, enable_gqa=True)

    q, k, v = torch.randn(B, H, Q, D), torch.randn(B, H // G, Q, D), torch.randn(B, H // G, Q, E)
    check(function, q, k, v, uses="flex_attention")
