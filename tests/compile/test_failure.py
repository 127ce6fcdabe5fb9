"""Graphs that cannot be compiled: the error names op, line and cause, or the graph runs op by op."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.compile.unlowered import twice
from torchneuron.eager.fallback import FallbackWarning
from torchneuron.lowering.errors import LoweringError

DEVICE = "neuron"
REASON = "no emitter, decomposition or Torch-MLIR lowering"


class Scaled(torch.autograd.Function):
    """Its forward compiles, its backward calls ``twice``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return twice(grads[0])


def forward_fails(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return twice(y) - 1


def branch_fails(x: torch.Tensor) -> torch.Tensor:
    """``twice`` cannot run by itself where it is: its graph runs op by op."""
    return torch.cond(x.sum() > 0, lambda y: twice(y + 1) - 1, lambda y: y - 1, (x,))


def backward_fails(x: torch.Tensor) -> torch.Tensor:
    return Scaled.apply(x.sin()).sum()


def line_with(function: Callable[..., Any], text: str) -> str:
    """``file:line`` of the line of ``function`` that holds ``text``."""
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", fullgraph=True, options=options)


def test_the_error_names_op_line_and_cause() -> None:
    with pytest.raises(LoweringError) as caught:
        compiled(forward_fails)(torch.ones(3, device=DEVICE))
    error = caught.value
    assert error.op == "tn_failure.twice.default"
    assert error.reason == REASON
    assert error.line == line_with(forward_fails, "twice(y)")
    assert all(part in str(error) for part in (error.op, error.reason, error.line))
    assert "'fallback': 'eager'" in error.__notes__[0]


def test_the_error_of_a_backward_names_op_and_line() -> None:
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    loss = compiled(backward_fails)(x)
    with pytest.raises(LoweringError, match=r"tn_failure\.twice\.default") as caught:
        loss.backward()
    assert caught.value.line == line_with(Scaled, "twice(grads[0])")


def test_an_error_inside_of_a_shape_function_names_the_op() -> None:
    from torchneuron.lowering.lower import lower
    from torchneuron.lowering.spec import FreshOutput, ProgramSpec, StorageSpec, TensorInput

    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output((graph.call_function(torch.ops.aten.mm.default, (x, y)),))
    inputs = tuple(TensorInput(i, torch.float32, (2, 3), (3, 1)) for i in range(2))
    spec = ProgramSpec(
        (StorageSpec(torch.float32, 6),) * 2, inputs, (FreshOutput(torch.float32, (2, 3), (3, 1)),)
    )
    with pytest.raises(LoweringError, match=r"aten\.mm\.default: RuntimeError"):
        lower(torch.fx.GraphModule({}, graph), spec)


def test_eagerly_instead_counted_and_warned_about_once() -> None:
    torch.neuron.reset_metrics()
    x = torch.ones(3, device=DEVICE)
    function = compiled(branch_fails, fallback="eager")
    with pytest.warns(FallbackWarning, match="runs operation by operation") as caught:
        results = [function(x).cpu() for _ in range(3)]
    assert all(torch.equal(result, torch.full((3,), 3.0)) for result in results)
    (warned,) = [item for item in caught if "operation by operation" in str(item.message)]
    assert "tn_failure.twice.default" in str(warned.message)
    assert line_with(branch_fails, "twice(y + 1)") in str(warned.message)
    assert warned.filename == __file__
    metrics = torch.neuron.metrics()
    (graph,) = [name for name in metrics["fallbacks"] if name.startswith("graph ")]
    assert metrics["fallbacks"][graph] == 3
    event = next(event for event in metrics["fallback_events"] if event["op"] == graph)
    assert event["source"] == line_with(branch_fails, "twice(y + 1)")
    assert REASON in event["reason"]


def test_a_backward_runs_eagerly_instead() -> None:
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    with pytest.warns(FallbackWarning, match=r"tn_failure\.twice\.default runs by itself"):
        compiled(backward_fails, fallback="eager")(x).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), 2 * torch.ones(3).cos())


def test_mutation_survives_the_eager_run() -> None:
    def add_twice(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(branch_fails(x) - 1)
        return total[:1]

    x, total = torch.ones(3, device=DEVICE), torch.zeros(3, device=DEVICE)
    with pytest.warns(FallbackWarning, match="runs operation by operation"):
        compiled(add_twice, fallback="eager")(x, total)
    assert total.cpu().tolist() == [2, 2, 2]


def test_what_can_be_compiled_is_compiled_all_the_same() -> None:
    torch.neuron.reset_metrics()
    result = compiled(lambda x: x.exp(), fallback="eager")(torch.zeros(2, device=DEVICE))
    assert result.cpu().tolist() == [1, 1]
    assert not torch.neuron.metrics()["fallbacks"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fallbak": "eager"}, "has no option fallbak; it has fallback"),
        ({"fallback": "cpu"}, "must be 'error' or 'eager', not 'cpu'"),
        ({"programs": 0}, "an integer of at least 1, not 0"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(Exception, match=text):
        torch.compile(torch.sin, backend="neuron", options=options)(torch.ones(2, device=DEVICE))


def test_the_users_options_are_left_as_they_are() -> None:
    options = {"fallback": "eager"}
    torch.compile(torch.cos, backend="neuron", options=options)(torch.zeros(2, device=DEVICE))
    assert options == {"fallback": "eager"}
