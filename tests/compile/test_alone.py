"""Operations that run by themselves, between the programs of a graph: checks of values, and what has no lowering."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from torchneuron.eager.fallback import FallbackWarning
from torchneuron.lowering.errors import LoweringError
from torchneuron.settings import settings

DEVICE = "neuron"


def full(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", fullgraph=True, options=options)


def line_with(function: Callable[..., Any], text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def positive_definite() -> Tensor:
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    return x @ x.T + 4 * torch.eye(4)


@pytest.fixture
def policy() -> Iterator[Callable[[str], None]]:
    before = settings.fallback

    def choose(value: Any) -> None:
        settings.fallback = value

    yield choose
    settings.fallback = before


def inv(x: Tensor) -> Any:
    return torch.linalg.inv(x) @ x.sin()


def solve(x: Tensor) -> Any:
    return torch.linalg.solve(x, x.cos())


def factor(x: Tensor) -> Any:
    return torch.linalg.lu_factor(x + 1).LU * 2


def cholesky(x: Tensor) -> Any:
    return torch.linalg.cholesky(x + x.T)


def tensor_ops(x: Tensor) -> Any:
    inverse = torch.linalg.tensorinv(x.view(4, 2, 2), ind=1)
    return inverse * 2, torch.linalg.tensorsolve(x.view(2, 2, 4), x[:2, :2] * 3)


def two_checks(x: Tensor) -> Any:
    return torch.linalg.inv(torch.linalg.inv(x) + torch.linalg.cholesky(x))


def singular_values(x: Tensor) -> Any:
    return torch.linalg.svdvals(x * 2).exp() + 1


def symmetric(x: Tensor) -> Any:
    values, vectors = torch.linalg.eigh(x + x.T)
    return values.sum() * vectors.abs() + torch.linalg.inv(x), torch.linalg.pinv(x)


CHECKED = (inv, solve, factor, cholesky, tensor_ops, two_checks)


@pytest.mark.parametrize(
    ("function", "dynamic"),
    [(f, False) for f in (*CHECKED, singular_values, symmetric)] + [(inv, True), (symmetric, True)],
)
def test_equals_the_cpu(function: Callable[[Tensor], Any], dynamic: bool, policy: Any) -> None:
    policy("allow")
    torch.neuron.reset_metrics()
    compiled = torch.compile(function, backend="neuron", fullgraph=True, dynamic=dynamic)
    x = positive_definite().requires_grad_()
    y = x.detach().to(DEVICE).requires_grad_()
    expected, actual = tree_leaves(function(x)), tree_leaves(compiled(y))
    torch.testing.assert_close([leaf.cpu() for leaf in actual], expected)
    sum(leaf.sum() for leaf in expected).backward()
    sum(leaf.sum() for leaf in actual).backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-4, atol=1e-5)
    assert bool(torch.neuron.metrics()["fallbacks"]) == (function not in CHECKED)


@pytest.mark.parametrize("function", CHECKED)
def test_a_singular_matrix_raises_as_without_compile(function: Callable[[Tensor], Any]) -> None:
    singular = -torch.ones(4, 4)
    with pytest.raises(RuntimeError) as expected:
        function(singular)
    with pytest.raises(RuntimeError) as raised:
        full(function)(singular.to(DEVICE))
    # LinAlgError, but for lu_factor.
    assert raised.type is expected.type
    assert str(raised.value) == str(expected.value)


def test_nothing_is_written_after_an_error() -> None:
    def accumulate(x: Tensor, total: Tensor) -> Tensor:
        inverse = torch.linalg.inv(x)
        total.add_(inverse)
        return inverse * 2

    total = torch.zeros(4, 4, device=DEVICE)
    compiled = full(accumulate)
    compiled(torch.eye(4, device=DEVICE), total)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        compiled(torch.zeros(4, 4, device=DEVICE), total)
    assert torch.equal(total.cpu(), torch.eye(4))


def test_a_check_leaves_one_program() -> None:
    def chain(x: Tensor) -> Tensor:
        return (torch.linalg.inv(x + 1) @ x).sin() + torch.linalg.cholesky(x).sum()

    explanation = torch.neuron.explain(full(chain), positive_definite().to(DEVICE))
    assert len(explanation.programs) == 1
    assert [cut.op for cut in explanation.cuts] == ["aten._linalg_check_errors.default"] * 2


def test_an_assertion_on_values_raises() -> None:
    def guarded(x: Tensor) -> Tensor:
        torch._assert_async((x > 0).all(), "only positive numbers")
        return x.log()

    torch.neuron.reset_metrics()
    compiled = full(guarded)
    assert compiled(torch.ones(3, device=DEVICE)).cpu().tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="only positive numbers"):
        compiled(-torch.ones(3, device=DEVICE))
    for message in ("not so", None):
        arguments = (message,) if message else ()
        with pytest.raises(RuntimeError, match=message or "single nonzero value, but got zero"):
            torch._assert_async(torch.zeros(1, device=DEVICE), *arguments)
    assert not torch.neuron.metrics()["fallbacks"]


def decomposed(x: Tensor) -> Tensor:
    y = x.sin() + 1
    values = torch.linalg.svdvals(y)
    return values * 2


def test_what_has_no_lowering_runs_on_the_cpu_and_says_so(policy: Any) -> None:
    policy("warn")
    torch.neuron.reset_metrics()
    from torchneuron.eager import fallback

    fallback._warned.discard("aten::_linalg_svd")
    x = torch.rand(5, 3, device=DEVICE)
    line = line_with(decomposed, "svdvals")
    with pytest.warns(FallbackWarning, match=r"aten::_linalg_svd runs on the CPU") as caught:
        explanation = torch.neuron.explain(full(decomposed), x)
    (warned,) = [item for item in caught if issubclass(item.category, FallbackWarning)]
    assert f"{warned.filename}:{warned.lineno}" == line
    assert line in str(warned.message)
    (cut,) = explanation.cuts
    assert (cut.op, cut.line) == ("aten._linalg_svd.default", line)
    assert explanation.fallbacks == {"aten::_linalg_svd": 1}
    assert len(explanation.programs) == 2
    assert "CUT FOR OPS THAT RUN BY THEMSELVES" in str(explanation)
    assert [event["source"] for event in torch.neuron.metrics()["fallback_events"]] == [line]


def test_what_has_no_lowering_is_an_error_by_the_setting(policy: Any) -> None:
    policy("error")
    with pytest.raises(LoweringError, match=r"aten\._linalg_svd\.default: no emitter") as caught:
        full(decomposed)(torch.rand(5, 4, device=DEVICE))
    assert caught.value.line == line_with(decomposed, "svdvals")


def test_what_is_compiled_before_counts_and_refuses_by_the_setting_of_the_call(policy: Any) -> None:
    policy("allow")
    torch.neuron.reset_metrics()
    compiled, x = full(decomposed), torch.rand(4, 4, device=DEVICE)
    for _ in range(3):
        compiled(x)
    assert torch.neuron.metrics()["fallbacks"] == {"aten::_linalg_svd": 3}


@torch.library.custom_op("tn_alone::norm_and_sum", mutates_args=())
def norm_and_sum(x: Tensor) -> tuple[Tensor, Tensor]:
    """Has no lowering; its own code runs on the device."""
    return x.norm().clone(), x.sum(0)


@norm_and_sum.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(()), x.new_empty(x.shape[1:])


def uses_custom(x: Tensor) -> Tensor:
    norm, total = norm_and_sum(x + 1)
    return total / norm


def test_a_custom_operator_is_an_error_unless_allowed() -> None:
    x = torch.rand(5, 3)
    with pytest.raises(LoweringError, match=r"tn_alone\.norm_and_sum\.default"):
        full(uses_custom)(x.to(DEVICE))
    torch._dynamo.reset()
    torch.neuron.reset_metrics()
    with pytest.warns(FallbackWarning, match=r"tn_alone\.norm_and_sum\.default runs by itself"):
        explanation = torch.neuron.explain(full(uses_custom, fallback="eager"), x.to(DEVICE))
    assert len(explanation.programs) == 2
    assert explanation.fallbacks == {"tn_alone.norm_and_sum.default": 1}
    actual = full(uses_custom, fallback="eager")(x.to(DEVICE))
    torch.testing.assert_close(actual.cpu(), uses_custom(x))
