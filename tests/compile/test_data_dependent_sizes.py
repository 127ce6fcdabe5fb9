"""Full graphs in which a size depends on data."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves


def masked_square(x: torch.Tensor) -> Any:
    chosen = (x * 2)[x > 0]
    return chosen * chosen, torch.nonzero(x)


def two_masks(x: torch.Tensor) -> Any:
    chosen = x[x > -0.5]
    return (chosen[chosen < 0.5] + 1).sum() * chosen


def unique_of_sum(x: torch.Tensor) -> Any:
    return torch.unique((x + 1).round()) * 2


def size_from_item(x: torch.Tensor) -> Any:
    count = (x > 0).sum().item()
    return torch.arange(count, device=x.device) * x.sum(), count


def sizes_on_host(x: torch.Tensor) -> Any:
    return [part * 2 for part in torch.tensor_split(x, torch.tensor([1, 5], device="cpu") + 1)]


def views_and_writes(x: torch.Tensor) -> Any:
    places = torch.nonzero(x.view(2, -1) > 0)
    x.mul_(3)
    return x[0], places.t(), places + 1, x


@pytest.mark.parametrize(
    ("function", "differentiable"),
    [
        (masked_square, False),
        (masked_square, True),
        (two_masks, True),
        (unique_of_sum, False),
        (size_from_item, True),
        (sizes_on_host, True),
        (views_and_writes, False),
    ],
)
def test_equals_eager(function: Callable[[torch.Tensor], Any], differentiable: bool) -> None:
    compiled = torch.compile(function, backend="neuron", fullgraph=True)
    torch.manual_seed(0)
    for _ in range(3):
        x = torch.randn(8, requires_grad=differentiable)
        y = x.detach().clone().to("neuron").requires_grad_(differentiable)
        expected, actual = tree_leaves(function(x)), tree_leaves(compiled(y))
        for e, a in zip(expected, actual, strict=True):
            if not isinstance(e, torch.Tensor):
                assert a == e
                continue
            torch.testing.assert_close(a.cpu(), e)
        if differentiable:
            expected[0].sum().backward()
            actual[0].sum().backward()
            torch.testing.assert_close(y.grad.cpu(), x.grad)
        torch.testing.assert_close(y.detach().cpu(), x.detach())


def test_result_aliases_argument() -> None:
    compiled = torch.compile(views_and_writes, backend="neuron", fullgraph=True)
    x = torch.randn(8, device="neuron")
    first, _, _, whole = compiled(x)
    x.zero_()
    assert first.item() == 0
    assert whole is x or whole.sum().item() == 0
