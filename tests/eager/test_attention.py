"""scaled_dot_product_attention: which calls are one operator, and that all of them are right."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = "neuron"
FUSED = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default


class Operators(TorchDispatchMode):
    """The operators called inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.found.append(func)
        return func(*args, **(kwargs or {}))


def fused_calls(run: Callable[[], Any]) -> int:
    """How often ``run`` calls the fused operator."""
    with Operators() as operators:
        run()
    return operators.found.count(FUSED)


def operands(
    heads: int = 4, queries: int = 5, keys: int = 7, size: int = 8
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key, value."""
    torch.manual_seed(0)
    wide = torch.randn(2, 4, queries, size), torch.randn(2, heads, keys, size)
    return *wide, torch.randn(2, heads, keys, 6)


def masks(queries: int = 5, keys: int = 7) -> dict[str, torch.Tensor]:
    """Masks of all documented kinds; a row of the first is masked whole."""
    wanted = torch.rand(queries, keys) > 0.4
    wanted[1] = False
    return {
        "bool": wanted,
        "float": torch.randn(queries, keys),
        "batch": torch.rand(2, 1, 1, keys) > 0.4,
        "whole": torch.randn(2, 4, queries, keys),
    }


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    **{name: {"attn_mask": mask} for name, mask in masks().items()},
}


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("name", FORMS)
def test_inference_is_one_operator(name: str, heads: int) -> None:
    given = operands(heads)
    form = FORMS[name] | {"enable_gqa": heads != 4}
    on_device = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in form.items()}
    moved = [x.to(DEVICE) for x in given]
    assert fused_calls(lambda: F.scaled_dot_product_attention(*moved, **on_device)) == 1
    found = F.scaled_dot_product_attention(*moved, **on_device)
    torch.testing.assert_close(found.cpu(), F.scaled_dot_product_attention(*given, **form))


@pytest.mark.parametrize(
    "sizes",
    [(4, 0, 7, 8), (4, 5, 0, 8), (4, 5, 7, 0)],
    ids=["no queries", "no keys", "no sizes"],
)
def test_empty_operands(sizes: tuple[int, int, int, int]) -> None:
    given = operands(*sizes)
    found = F.scaled_dot_product_attention(*(x.to(DEVICE) for x in given))
    with sdpa_kernel(SDPBackend.MATH):
        expected = F.scaled_dot_product_attention(*given)
    torch.testing.assert_close(found.cpu(), expected, equal_nan=True)


def test_derivatives_of_all_orders_take_the_math_road() -> None:
    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        first = torch.autograd.grad(
            F.scaled_dot_product_attention(*given).sin().sum(), given, create_graph=True
        )
        total = sum((x.square().sum() for x in first), torch.zeros((), device=given[0].device))
        return [*first, *torch.autograd.grad(total, given)]

    given = [x.requires_grad_() for x in operands()]
    moved = [x.detach().to(DEVICE).requires_grad_() for x in given]
    assert fused_calls(lambda: run(*moved)) == 0
    with sdpa_kernel(SDPBackend.MATH):
        expected = run(*given)
    for found, wanted in zip(run(*moved), expected, strict=True):
        torch.testing.assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-5)


def test_a_mask_with_a_gradient() -> None:
    def run(mask: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*given, attn_mask=mask).sin().sum()

    given, mask = operands(), torch.randn(5, 7, requires_grad=True)
    moved = mask.detach().to(DEVICE).requires_grad_()
    (expected,) = torch.autograd.grad(run(mask, *given), mask)
    (found,) = torch.autograd.grad(run(moved, *(x.to(DEVICE) for x in given)), moved)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transform", ["vmap", "jvp", "grad"])
def test_function_transforms(transform: str) -> None:
    def run(*given: torch.Tensor) -> Any:
        if transform == "vmap":
            return torch.vmap(F.scaled_dot_product_attention)(*(x.unsqueeze(1) for x in given))
        if transform == "jvp":
            return torch.func.jvp(F.scaled_dot_product_attention, given, given)
        return torch.func.grad(lambda q: F.scaled_dot_product_attention(q, *given[1:]).sum())(
            given[0]
        )

    given = operands()
    with sdpa_kernel(SDPBackend.MATH):
        expected = run(*given)
    found = run(*(x.to(DEVICE) for x in given))
    torch.testing.assert_close(
        [x.cpu() for x in found] if transform == "jvp" else found.cpu(),
        list(expected) if transform == "jvp" else expected,
        rtol=1e-4,
        atol=1e-5,
    )


def test_what_the_user_chose_holds() -> None:
    moved = [x.to(DEVICE) for x in operands()]
    with sdpa_kernel(SDPBackend.MATH):
        assert fused_calls(lambda: F.scaled_dot_product_attention(*moved)) == 0


def test_dropout_draws_the_same_numbers_compiled() -> None:
    def run(*given: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*given, dropout_p=0.5)

    moved = [x.to(DEVICE) for x in operands()]
    torch.manual_seed(3)
    expected = run(*moved)
    torch.manual_seed(3)
    found = torch.compile(run, backend="neuron", fullgraph=True)(*moved)
    torch.testing.assert_close(found.cpu(), expected.cpu())


def test_wrong_shapes_raise_what_the_math_road_raises() -> None:
    query, key, value = (x.to(DEVICE) for x in operands())
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(query, key, value[:, :, :3])
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(query, key, value, attn_mask=query.new_zeros(5, 6))
