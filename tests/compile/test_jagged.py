"""Compiled functions of jagged nested tensors, at one raggedness after the other, against the CPU."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nested import nested_tensor, nested_tensor_from_jagged
from torch.nn import functional as F

from tests.compile.unlowered import twice

DEVICE = "neuron"
RAGGED = ((3, 5, 2), (4, 1, 7), (1, 1, 1))
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    # AOTAutogradCache has no key for them, with any backend.
    pytest.mark.filterwarnings("ignore:NestedTensor does not implement"),
]


class Apply(nn.Module):
    """A function of a jagged tensor that has been through a layer."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.layer(x))


class Block(nn.Module):
    """A transformer's block, whose normalisations are of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(8), nn.RMSNorm(8)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, ragged, 8) -> the same."""
        normal = self.first(x)
        q, k, v = (
            layer(normal).unflatten(-1, (2, 4)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.second(x))))


def make(lengths: Sequence[int], device: str, requires_grad: bool = False) -> torch.Tensor:
    """(len(lengths), ragged, 8), of the same numbers on every device."""
    rows = torch.randn(sum(lengths), 8, generator=torch.Generator().manual_seed(sum(lengths)))
    parts = [part.clone() for part in rows.split(list(lengths))]
    return nested_tensor(parts, layout=torch.jagged, device=device, requires_grad=requires_grad)


def dense(value: torch.Tensor) -> torch.Tensor:
    return value.values() if value.is_nested else value


def pair(net: nn.Module, **options: Any) -> tuple[nn.Module, Any]:
    """``net``, and its compiled copy on the device."""
    return net, torch.compile(
        copy.deepcopy(net).to(DEVICE), backend="neuron", options=options or None
    )


def traces_of(module: Callable[..., Any], inputs: Iterator[torch.Tensor]) -> int:
    """How many graphs TorchDynamo captures for the calls."""
    before = counters["stats"]["unique_graphs"]
    for x in inputs:
        module(x)
    return int(counters["stats"]["unique_graphs"] - before)


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "linear": lambda x: x,
    "elementwise": lambda x: x.sin() * x + 1,
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "softmax": lambda x: x.softmax(-1),
    "softmax of the rows": lambda x: torch.softmax(x, 1),
    "amax of the rows": lambda x: x.amax(1),
    "padded": lambda x: x.to_padded_tensor(0.5),
    "sum of all": lambda x: x.values().sum(),
    "times a column": lambda x: x * torch.arange(3.0, device=x.device).reshape(3, 1, 1),
    "times the batch": lambda x: x * x.size(0),
    "dropout": lambda x: F.dropout(x, 0.0),
    "from values": lambda x: nested_tensor_from_jagged(x.values() * 2, x.offsets()),
}
# PyTorch has no gradient for these, compiled or not.
FORWARD_ONLY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(1),
    "sum of columns": lambda x: x.sum(-1),
}


@pytest.mark.parametrize("name", [*FUNCTIONS, *FORWARD_ONLY])
def test_forward(name: str) -> None:
    cpu, device = pair(Apply((FUNCTIONS | FORWARD_ONLY)[name]))
    with torch.no_grad():
        for lengths in RAGGED:
            found, expected = device(make(lengths, DEVICE)), cpu(make(lengths, "cpu"))
            assert found.is_nested == expected.is_nested
            torch.testing.assert_close(dense(found).cpu(), dense(expected), rtol=1e-4, atol=1e-5)


def compare_training(cpu: nn.Module, device: nn.Module) -> None:
    for lengths in RAGGED:
        x, device_x = make(lengths, "cpu", True), make(lengths, DEVICE, True)
        for net, given in ((cpu, x), (device, device_x)):
            net.zero_grad()
            dense(net(given)).square().sum().backward()
        found, expected = device_x.grad, x.grad
        assert found is not None
        assert expected is not None
        assert found.shape[1] == device_x.shape[1]
        torch.testing.assert_close(found.values().cpu(), expected.values(), rtol=1e-4, atol=1e-4)
        for one, other in zip(device.parameters(), cpu.parameters(), strict=True):
            torch.testing.assert_close(
                one.grad.cpu(),  # type: ignore[union-attr]
                other.grad,
                rtol=1e-4,
                atol=1e-4,
            )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str) -> None:
    compare_training(*pair(Apply(FUNCTIONS[name])))


@pytest.mark.parametrize("differentiated", [False, True])
def test_a_transformers_block(differentiated: bool) -> None:
    torch.manual_seed(0)
    cpu, device = pair(Block())
    if differentiated:
        compare_training(cpu, device)
        return
    with torch.no_grad():
        for lengths in RAGGED:
            found, expected = device(make(lengths, DEVICE)), cpu(make(lengths, "cpu"))
            parts = zip(found.unbind(), expected.unbind(), strict=True)
            for length, (one, other) in zip(lengths, parts, strict=True):
                assert one.shape == (length, 8)
                torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)


def test_as_many_traces_as_pytorch_needs() -> None:
    net = Apply(FUNCTIONS["softmax of the rows"])
    counts = []
    for device, backend in ((DEVICE, "neuron"), ("cpu", "aot_eager")):
        torch._dynamo.reset()
        run = torch.compile(copy.deepcopy(net).to(device), backend=backend, fullgraph=True)
        counts.append(traces_of(run, (make(lengths, device) for lengths in RAGGED)))
    assert counts[0] == counts[1]


def sizes(x: torch.Tensor) -> Any:
    return x * 2, x.size(1), x.size(1) * 3, x.size(0) * 2, x.dim(), None


@pytest.mark.parametrize("differentiated", [False, True])
def test_sizes_as_results(differentiated: bool) -> None:
    run = torch.compile(sizes, backend="neuron", fullgraph=True)
    for lengths in RAGGED[:2] * 2:
        x = make(lengths, DEVICE, differentiated)
        doubled, ragged, multiple, *others = run(x)
        assert ragged == x.size(1)
        assert multiple == x.size(1) * 3
        assert others == [6, 3, None]
        # The ragged size is that of this call: only then may the two be added.
        torch.testing.assert_close((doubled + x).values(), 3 * x.values())


def test_two_of_one_raggedness() -> None:
    run = torch.compile(lambda x, y: x * y + x, backend="neuron", fullgraph=True)
    for lengths in RAGGED:
        x = make(lengths, DEVICE)
        found = run(x, x.cos())
        torch.testing.assert_close(found.values(), (x * x.cos() + x).values())


@pytest.mark.filterwarnings("ignore:.* runs by itself")
def test_a_ragged_size_beside_an_operation_that_runs_by_itself() -> None:
    def function(x: torch.Tensor) -> Any:
        rows = twice(x.values().sin()) + 1
        return nested_tensor_from_jagged(rows, x.offsets()), x.size(1) * 2

    options = {"fallback": "eager"}
    run = torch.compile(function, backend="neuron", fullgraph=True, options=options)
    for lengths in RAGGED:
        x = make(lengths, DEVICE)
        found, ragged = run(x)
        assert ragged == x.size(1) * 2
        torch.testing.assert_close(found.values(), x.values().sin() * 2 + 1)


@pytest.mark.filterwarnings("ignore:.* runs operation by operation")
def test_a_ragged_size_in_a_graph_that_runs_op_by_op() -> None:
    def function(x: torch.Tensor) -> Any:
        rows = x.values()
        total = rows.sum()
        found = torch.cond(total < 1e6, lambda y: twice(y + 1), lambda y: y - 1, (total,))
        return found, x.size(1)

    options = {"fallback": "eager"}
    run = torch.compile(function, backend="neuron", fullgraph=True, options=options)
    for lengths in RAGGED[:2]:
        x = make(lengths, DEVICE)
        found, ragged = run(x)
        assert ragged == x.size(1)
        torch.testing.assert_close(found, (x.values().sum() + 1) * 2)


@pytest.mark.parametrize("options", [{"freeze": True}, {"buckets": "powers_of_two"}])
def test_options(options: dict[str, Any]) -> None:
    cpu, device = pair(Apply(lambda x: x.sin() + 1), **options)
    with torch.no_grad():
        for lengths in RAGGED:
            found, expected = device(make(lengths, DEVICE)), cpu(make(lengths, "cpu"))
            torch.testing.assert_close(found.values().cpu(), expected.values())
            assert [len(part) for part in found.unbind()] == list(lengths)
