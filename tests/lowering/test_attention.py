"""Fused attention against PyTorch's formula, in all its variants, and its gradient against autograd's."""

from typing import Any

import pytest
import torch

from tests.lowering.harness import call, check_ops, run_op

aten = torch.ops.aten
FORWARD = aten._scaled_dot_product_fused_attention_overrideable.default
BACKWARD = aten._scaled_dot_product_fused_attention_overrideable_backward.default


def _formula(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    keep: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(output, logarithms of the sums)"""
    heads = q.shape[-3] // k.shape[-3]
    k, v = k.repeat_interleave(heads, -3), v.repeat_interleave(heads, -3)
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    sums = scores.logsumexp(-1)
    probabilities = torch.exp(scores - sums.nan_to_num(neginf=0).unsqueeze(-1))
    if keep is not None:
        probabilities = probabilities * keep
    return probabilities @ v, sums


def _forward_expected(output: torch.Tensor, sums: torch.Tensor) -> list[Any]:
    zero = torch.tensor(0)
    return [output, sums, None, None, output.shape[-2], None, zero, zero, None]


# query, key shapes; value's last size; bias shape; causal; scale
CASES: list[
    tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...] | None, bool, float | None]
] = [
    ((2, 4, 5, 8), (2, 4, 7, 8), 8, None, False, None),
    ((2, 4, 7, 8), (2, 4, 7, 8), 6, None, True, 0.3),
    ((2, 4, 5, 8), (2, 2, 7, 8), 8, (2, 4, 5, 7), False, None),
    ((2, 4, 5, 8), (2, 4, 3, 8), 8, (5, 3), True, None),
    ((2, 4, 5, 8), (2, 1, 3, 8), 8, (2, 1, 1, 3), False, None),
    ((4, 5, 8), (4, 7, 8), 8, None, False, None),
    ((1, 2, 600, 8), (1, 2, 700, 8), 8, (600, 1), True, None),
]


@pytest.mark.parametrize("case", CASES)
def test_attention_and_gradient(case: Any) -> None:
    torch.manual_seed(0)
    q_shape, k_shape, v_size, bias_shape, causal, scale = case
    q, k = torch.randn(q_shape, requires_grad=True), torch.randn(k_shape, requires_grad=True)
    v = torch.randn(*k_shape[:-1], v_size, requires_grad=True)
    bias = torch.randn(bias_shape, requires_grad=True) if bias_shape else None
    output, sums = _formula(q, k, v, bias, causal, scale)
    inputs = [x.detach() if x is not None else None for x in (q, k, v, bias)]
    flat_sums = sums.detach().unsqueeze(0) if sums.dim() == 2 else sums.detach()
    run_op(
        FORWARD,
        *inputs,
        0.0,
        causal,
        scale=scale,
        expected=_forward_expected(output.detach(), flat_sums),
    )

    grad = torch.randn_like(output)
    wanted = [x for x in (q, k, v, bias) if x is not None]
    gradients = torch.autograd.grad(output, wanted, grad)
    expected = [*gradients, *[None] * (4 - len(gradients))]
    saved = (
        output.detach(),
        flat_sums,
        None,
        None,
        0,
        0,
        0.0,
        causal,
        torch.tensor(0),
        torch.tensor(0),
    )
    run_op(
        BACKWARD,
        grad,
        *inputs,
        [True] * 4,
        *saved,
        scale=scale,
        expected=expected,
        atol=2e-5,
        rtol=1e-5,
    )


def test_rows_that_are_masked_whole_give_zeros() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    mask = torch.rand(4, 4) > 0.5
    mask[:, 0] = True
    mask[2] = False
    bias = torch.zeros(4, 4).masked_fill(~mask, float("-inf"))
    output, sums = _formula(q, k, v, bias, False, None)
    assert (output[:, :, 2] == 0).all()
    for given in (bias, mask):
        run_op(FORWARD, q, k, v, given, expected=_forward_expected(output, sums))
    saved = (output, sums, None, None, 4, 4, 0.0, False, torch.tensor(0), torch.tensor(0))
    grads = run_op(
        BACKWARD,
        torch.randn_like(q),
        q,
        k,
        v,
        bias,
        [True, True, True, False],
        *saved,
        compare=False,
        expected=[q, k, v, bias],
    )
    assert all(torch.isfinite(grad).all() for grad in grads)
    assert (grads[0][:, :, 2] == 0).all()


@pytest.mark.parametrize("length", [6, 520])
def test_dropout_is_the_same_in_the_gradient(length: int) -> None:
    torch.manual_seed(0)
    q, k = (torch.randn(1, 2, length, 8, requires_grad=True) for _ in range(2))
    # With one-hot values the output is the probabilities themselves.
    v = torch.eye(length).expand(1, 2, length, length)
    inputs = [q.detach(), k.detach(), v.contiguous()]
    like = _forward_expected(torch.zeros(1, 2, length, length), torch.zeros(1, 2, length))
    output, sums, *_, seed, offset, _ = run_op(
        FORWARD, *inputs, None, 0.4, True, compare=False, expected=like, seed=5
    )
    probabilities, _ = _formula(q, k, v, None, True, None)
    keep = torch.where(output != 0, 1 / 0.6, 0.0)
    torch.testing.assert_close(output, (probabilities * keep).detach())
    visible = torch.ones(length, length).tril().bool()
    assert abs((keep[..., visible] > 0).float().mean() - 0.6) < (0.2 if length == 6 else 0.01)
    assert seed.item() == 5

    grad = torch.randn(1, 2, length, length)
    expected = torch.autograd.grad(_formula(q, k, v, None, True, None, keep)[0], (q, k), grad)
    saved = (output, sums, None, None, length, length, 0.4, True, seed, offset)
    to_q, to_k, *_ = run_op(
        BACKWARD,
        grad,
        *inputs,
        None,
        [True] * 4,
        *saved,
        compare=False,
        expected=[*inputs, None],
    )
    torch.testing.assert_close(to_q, expected[0], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(to_k, expected[1], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 5, 8).to(dtype).requires_grad_() for _ in range(3))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    output, sums = _formula(*wide, None, True, None)
    inputs = [x.detach() for x in (q, k, v)]
    narrow = dtype is torch.bfloat16
    # Probabilities are rounded to bfloat16 before they meet the values.
    tolerances = {"rtol": 0.02, "atol": 0.02} if narrow else {}
    result = output.detach().to(dtype)
    run_op(
        FORWARD,
        *inputs,
        None,
        0.0,
        True,
        expected=_forward_expected(result, sums.detach().float()),
        **tolerances,
    )
    grad = torch.randn_like(result)
    gradients = torch.autograd.grad(output, wide, grad.double())
    saved = (
        result,
        sums.detach().float(),
        None,
        None,
        5,
        5,
        0.0,
        True,
        torch.tensor(0),
        torch.tensor(0),
    )
    run_op(
        BACKWARD,
        grad,
        *inputs,
        None,
        [True] * 4,
        *saved,
        expected=[*(g.to(dtype) for g in gradients), None],
        **tolerances,
    )


def _layer(batch: int, tokens: int, width: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    x = torch.randn(batch, tokens, width)
    shapes = [(3 * width, width), (3 * width,), (width, width), (width,)]
    return x, [torch.randn(shape) / 3 for shape in shapes]


def test_fast_path_of_multi_head_attention() -> None:
    torch.manual_seed(0)
    x, parameters = _layer(2, 3, 8)
    masks = [
        (None, None),
        (torch.ones(3, 3).triu(1).bool(), 0),
        (torch.tensor([[0, 0, 1], [0, 1, 0]]).bool(), 1),
        (torch.tensor([False, True, False]).expand(2, 2, 3, 3).contiguous(), 2),
    ]
    op = aten._native_multi_head_attention.default
    calls = [
        call(op, x, x, x, 8, 2, *parameters, mask, need, average, kind)
        for mask, kind in masks
        for need, average in ((True, True), (True, False), (False, True))
    ]
    y = torch.randn(2, 3, 8)
    calls.append(call(op, x, y, y, 8, 2, *parameters))
    scores = torch.randn(2, 2, 3, 3)
    for mask, kind in masks[1:]:
        calls.append(call(aten._masked_softmax.default, scores, mask, 3, kind))
    calls.append(
        call(aten._transform_bias_rescale_qkv.default, torch.randn(2, 3, 24), parameters[1], 2)
    )
    check_ops(calls)


def test_fast_path_of_encoder_layer() -> None:
    torch.manual_seed(0)
    x, parameters = _layer(2, 3, 8)
    norms = [torch.rand(8) for _ in range(4)]
    feed_forward = [torch.randn(shape) / 3 for shape in ((16, 8), (16,), (8, 16), (8,))]
    op = aten._transformer_encoder_layer_fwd.default
    check_ops(
        [
            call(op, x, 8, 2, *parameters, gelu, first, 1e-5, *norms, *feed_forward)
            for gelu, first in ((True, False), (False, True))
        ]
    )
