"""Losses. Their parameters (delta, beta, margin) are part of the program."""

import torch

from torchneuron.lowering.registry import decomposition, shape_rule, use_stock_decomposition

use_stock_decomposition(
    "aten.mse_loss",
    "aten.mse_loss_backward",
    "aten.smooth_l1_loss",
    "aten.smooth_l1_loss_backward",
    "aten.huber_loss",
    "aten.huber_loss_backward",
    "aten.binary_cross_entropy",
    "aten.binary_cross_entropy_backward",
    "aten.binary_cross_entropy_with_logits",
    "aten.soft_margin_loss",
    "aten.soft_margin_loss_backward",
    "aten.multi_margin_loss",
    "aten.multilabel_margin_loss_forward",
)


@shape_rule("aten.multi_margin_loss_backward")
def _like_input(grad_output: torch.Tensor, x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x)


@decomposition("aten.multi_margin_loss_backward")
def multi_margin_loss_backward(
    grad_output: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    p: float,
    margin: float,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    scores = x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)
    classes = target.reshape(-1, 1)
    slack = margin - scores.gather(1, classes) + scores
    slope = torch.where(slack > 0, torch.ones_like(slack) if p == 1 else 2 * slack, 0.0)
    if weight is not None:
        slope = slope * weight[classes]
    grad = grad_output.reshape(-1, 1)
    scale = scores.shape[1] * (scores.shape[0] if reduction == 1 else 1)
    slope = slope * grad / scale
    own = torch.arange(scores.shape[1], device=x.device) == classes
    slope = torch.where(own, 0.0, slope)
    return torch.where(own, -slope.sum(1, keepdim=True), slope).reshape(x.shape)


@shape_rule("aten.multilabel_margin_loss_backward")
def _like_second(grad_output: torch.Tensor, x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x)


@decomposition("aten.multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(
    grad_output: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    is_target: torch.Tensor,
) -> torch.Tensor:
    scores = x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)
    count, classes = scores.shape
    listed = target.reshape(count, classes)
    # Targets end at the first negative one.
    valid = torch.cumsum((listed < 0).to(torch.int64), 1) == 0
    chosen = torch.where(valid, listed, 0)
    rest = is_target.reshape(count, 1, classes) == 0
    slack = 1 - scores.gather(1, chosen).unsqueeze(2) + scores.unsqueeze(1)
    active = ((slack > 0) & rest & valid.unsqueeze(2)).to(x.dtype)
    scale = grad_output.reshape(-1, 1) / (classes * (count if reduction == 1 else 1))
    own = (torch.arange(classes, device=x.device) == chosen.unsqueeze(2)) & valid.unsqueeze(2)
    pulled = (active.sum(2, keepdim=True) * own.to(x.dtype)).sum(1)
    return ((active.sum(1) - pulled) * scale).reshape(x.shape)
