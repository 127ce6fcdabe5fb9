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


# The multi-label loss compares each listed class with each that is not; a list ends at its first negative entry.


class _Labels:
    """``listed`` and ``scores`` are (N, C), ``valid`` says which entries count."""

    def __init__(self, x: torch.Tensor, target: torch.Tensor):
        self.scores = x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)
        listed = target.reshape(self.scores.shape)
        self.valid = torch.cumsum((listed < 0).to(torch.int64), 1) == 0
        self.listed = torch.where(self.valid, listed, 0)
        classes = torch.arange(self.scores.shape[1], device=x.device)
        self.own = (classes == self.listed.unsqueeze(2)) & self.valid.unsqueeze(2)

    def slack(self, rest: torch.Tensor) -> torch.Tensor:
        """(N, listed, C): how far each other class comes too near, 0 if it does not."""
        gap = 1 - self.scores.gather(1, self.listed).unsqueeze(2) + self.scores.unsqueeze(1)
        return torch.where(rest.unsqueeze(1) & self.valid.unsqueeze(2), gap.clamp_min(0), 0.0)


@decomposition("aten.multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(
    x: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    labels = _Labels(x, target)
    is_target = labels.own.any(1)
    losses = labels.slack(~is_target).sum((1, 2)) / labels.scores.shape[1]
    if reduction == 1:
        losses = losses.mean()
    elif reduction == 2 or x.dim() < 2:
        losses = losses.sum()
    return losses, is_target.to(x.dtype).reshape(target.shape)


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
    labels = _Labels(x, target)
    count, classes = labels.scores.shape
    rest = is_target.reshape(count, classes) == 0
    active = (labels.slack(rest) > 0).to(x.dtype)
    pulled = (active.sum(2, keepdim=True) * labels.own.to(x.dtype)).sum(1)
    scale = grad_output.reshape(-1, 1) / (classes * (count if reduction == 1 else 1))
    return ((active.sum(1) - pulled) * scale).reshape(x.shape)
