"""options={"freeze": True}: what depends on parameters alone is computed once, and anew when they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

DEVICE = "neuron"


class Net(nn.Module):
    """Weights that are normalised, running statistics, and a weight used as it is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = weight_norm(nn.Linear(6, 8))
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu())


def packs() -> int:
    return int(torch.neuron.metrics()["frozen_packs"])


@pytest.fixture
def net() -> Any:
    torch.neuron.reset_metrics()
    return Net().eval()


def compiled(model: nn.Module) -> Callable[..., Any]:
    return torch.compile(model, backend="neuron", fullgraph=True, options={"freeze": True})


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_equals_the_cpu_and_packs_once(net: Net, mode: Any) -> None:
    x = torch.randn(5, 6)
    with mode():
        expected = net(x)
        model = compiled(net.to(DEVICE))
        for _ in range(3):
            torch.testing.assert_close(model(x.to(DEVICE)).cpu(), expected)
    assert packs() == 1


def test_a_changed_parameter_is_packed_anew(net: Net) -> None:
    x = torch.randn(5, 6)
    twin = Net().eval()
    model = compiled(net.to(DEVICE))
    with torch.no_grad():
        model(x.to(DEVICE))
        for one in (net, twin):
            one.norm.running_var.mul_(3)
            one.first.parametrizations.weight.original1.add_(0.5)
        torch.testing.assert_close(model(x.to(DEVICE)).cpu(), twin(x))
        assert packs() == 2
        twin.load_state_dict(Net().state_dict())
        net.load_state_dict(Net().state_dict(), assign=True)
        net.to(DEVICE)
        torch.testing.assert_close(model(x.to(DEVICE)).cpu(), twin(x))


def test_training_steps_between_are_seen(net: Net) -> None:
    x = torch.randn(5, 6, device=DEVICE)
    net.to(DEVICE)
    model = compiled(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(model(x).cpu(), net(x).cpu())
        model(x).sum().backward()
        optimizer.step()
    assert packs() == 2


def test_casts_of_autocast_are_packed() -> None:
    torch.neuron.reset_metrics()
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).to(DEVICE)
    x = torch.randn(4, 6, device=DEVICE)
    with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
        explanation = torch.neuron.explain(compiled(model), x)
        first, second = explanation.graphs
        assert first.roads["emitter"] == {"aten._to_copy.default": 4}
        # The input, and nothing else.
        assert second.roads["emitter"]["aten._to_copy.default"] == 1
        torch.testing.assert_close(compiled(model)(x), model(x))


def test_two_modules_of_one_code_have_their_own_values() -> None:
    first, second = Net().eval(), Net().eval()
    with torch.no_grad():
        second.norm.running_mean.add_(1)
        x = torch.randn(5, 6)
        expected = [model(x) for model in (first, second)]
        models = [compiled(model.to(DEVICE)) for model in (first, second)]
        for _ in range(2):
            for model, result in zip(models, expected, strict=True):
                torch.testing.assert_close(model(x.to(DEVICE)).cpu(), result)


def test_a_computed_value_that_is_returned_is_the_callers() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Any:
            scaled = self.weight * 2
            return x * scaled, scaled

    model = compiled(Scaled().to(DEVICE))
    x = torch.ones(3, device=DEVICE)
    with torch.no_grad():
        model(x)[1].zero_()
        assert model(x)[0].cpu().tolist() == [2, 2, 2]


def test_an_argument_that_the_graph_writes_is_not_frozen() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            result = x * (self.count + 1).exp()
            self.count.add_(1)
            return result

    model, twin = Counter().to(DEVICE), Counter()
    function = compiled(model)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(
                function(torch.ones(2, device=DEVICE)).cpu(), twin(torch.ones(2))
            )
