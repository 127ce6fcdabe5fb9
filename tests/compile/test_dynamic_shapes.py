"""Dynamic shapes: one trace, a program for each shape, bounded, explained."""

import copy
from collections import deque
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import clear_compilation_metrics, counters, get_compilation_metrics
from torch.nn import functional as F

DEVICE = "neuron"
LENGTHS = (3, 5, 8, 2, 13, 21, 4, 9, 16, 7)


def traces() -> int:
    """How many graphs TorchDynamo has captured so far."""
    return int(counters["stats"]["unique_graphs"])


def block(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    scores = F.softmax(x @ x.transpose(-1, -2) / x.shape[1], -1)
    return F.layer_norm(scores @ x, x.shape[-1:]) @ weight + x.shape[0]


def graphs() -> int:
    events = torch.neuron.metrics()["compile_events"]
    return sum(event["op"].startswith("graph") for event in events)


def test_ten_lengths_take_one_trace_and_ten_programs() -> None:
    weight = torch.randn(6, 6)
    run = torch.compile(block, backend="neuron", fullgraph=True, dynamic=True)
    before, traced = graphs(), traces()
    for length in LENGTHS:
        x = torch.randn(2, length, 6)
        torch.testing.assert_close(
            run(weight.to(DEVICE), x.to(DEVICE)).cpu(), block(weight, x), rtol=1e-4, atol=1e-5
        )
    assert traces() - traced == 1
    assert graphs() - before <= 10
    for length in LENGTHS:
        run(weight.to(DEVICE), torch.randn(2, length, 6, device=DEVICE))
    assert traces() - traced == 1
    assert graphs() - before <= 10


def test_gradients_at_every_length() -> None:
    weight = torch.randn(6, 6, requires_grad=True)
    device_weight = weight.detach().to(DEVICE).requires_grad_()
    run = torch.compile(block, backend="neuron", fullgraph=True, dynamic=True)
    for length in LENGTHS[:5]:
        x = torch.randn(2, length, 6)
        weight.grad = device_weight.grad = None
        block(weight, x).square().sum().backward()
        run(device_weight, x.to(DEVICE)).square().sum().backward()
        torch.testing.assert_close(device_weight.grad.cpu(), weight.grad, rtol=1e-4, atol=1e-4)  # type: ignore[union-attr]


def test_dynamic_after_the_second_shape() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * x.shape[0]).cumsum(0)

    traced = traces()
    run = torch.compile(function, backend="neuron", fullgraph=True)
    for length in LENGTHS:
        x = torch.randn(length, 2)
        torch.testing.assert_close(run(x.to(DEVICE)).cpu(), function(x))
    assert traces() - traced == 2


def test_marked_dimensions() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin().mean(0)

    traced = traces()
    run = torch.compile(function, backend="neuron", fullgraph=True)
    for length in LENGTHS[:4]:
        x = torch.randn(length, 3, device=DEVICE)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(run(x).cpu(), function(x.cpu()))
    assert traces() - traced == 1


def test_sizes_as_results_and_in_views() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        return (
            x.shape[0],
            x.shape[0] * x.shape[1] + 1,
            x.t(),
            y[1:],
            y.reshape(-1),
            x.expand(2, -1, -1),
        )

    run = torch.compile(function, backend="neuron", fullgraph=True, dynamic=True)
    for length in LENGTHS[:4]:
        x = torch.randn(length, length + 1)
        device_x = x.to(DEVICE)
        for found, expected in zip(run(device_x), function(x), strict=True):
            if isinstance(expected, int):
                assert found == expected
                continue
            assert found.stride() == expected.stride()
            torch.testing.assert_close(found.cpu(), expected)


def numbers(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return x.sum(), n * 2, -n, n // 2, n % 3, max(n, 4), n / 4, n**0.5, n > 4, n == 5, None


def test_numbers_of_every_kind_as_results() -> None:
    run = torch.compile(numbers, backend="neuron", fullgraph=True, dynamic=True)
    traced = traces()
    for length in LENGTHS:
        x = torch.randn(length, requires_grad=True)
        device_x = x.detach().to(DEVICE).requires_grad_()
        total, *found = run(device_x)
        expected_total, *expected = numbers(x)
        assert [(type(n), n) for n in found] == [(type(n), n) for n in expected]
        torch.testing.assert_close(total.cpu(), expected_total)
        total.backward()
        torch.testing.assert_close(device_x.grad, torch.ones(length, device=DEVICE))
    assert traces() - traced <= 2  # the comparisons may be guards


def test_an_integer_argument_that_becomes_a_symbol() -> None:
    def function(x: torch.Tensor, n: int) -> Any:
        return (x * n)[:n], x.new_zeros(n), torch.arange(n, device=x.device), n * 2, n + x.shape[0]

    run = torch.compile(function, backend="neuron", fullgraph=True, dynamic=True)
    traced = traces()
    for length in LENGTHS:
        x = torch.randn(length + 2)
        for found, expected in zip(run(x.to(DEVICE), length), function(x, length), strict=True):
            if isinstance(expected, torch.Tensor):
                torch.testing.assert_close(found.cpu(), expected)
            else:
                assert (type(found), found) == (int, expected)
    assert traces() - traced == 1


def test_a_backward_takes_sizes_from_its_forward() -> None:
    def function(x: torch.Tensor, weight: torch.Tensor, n: int) -> torch.Tensor:
        rows = (x @ weight).reshape(-1, 3, 2).transpose(0, 1).reshape(-1, 2 * n)
        return (rows[:, : n + 1].expand(n, -1, -1) / n).sin()

    run = torch.compile(function, backend="neuron", fullgraph=True, dynamic=True)
    for length in LENGTHS[:6]:
        x, weight = torch.randn(length, 4, requires_grad=True), torch.randn(4, 6)
        given = [value.detach().to(DEVICE) for value in (x, weight)]
        weight.requires_grad_()
        for tensor in given:
            tensor.requires_grad_()
        function(x, weight, length).square().sum().backward()
        run(*given, length).square().sum().backward()
        for tensor, expected in zip(given, (x, weight), strict=True):
            torch.testing.assert_close(tensor.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-4)  # type: ignore[union-attr]


def test_mutation_at_every_length() -> None:
    run = torch.compile(lambda c, x: c[: x.shape[0]].add_(x), backend="neuron", dynamic=True)
    cache, expected = torch.zeros(32, device=DEVICE), torch.zeros(32)
    for length in LENGTHS:
        run(cache, torch.ones(length, device=DEVICE))
        expected[:length] += 1
    torch.testing.assert_close(cache.cpu(), expected)


def test_modules_with_convolutions_and_pooling() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    )
    run = torch.compile(copy.deepcopy(net).to(DEVICE), backend="neuron", dynamic=True)
    for size in (4, 6, 9):
        x = torch.randn(1, 2, size, size)
        torch.testing.assert_close(run(x.to(DEVICE)).cpu(), net(x), rtol=1e-4, atol=1e-5)


def test_the_number_of_programs_is_bounded() -> None:
    run = torch.compile(lambda x: x * 3, backend="neuron", dynamic=True, options={"programs": 3})
    dropped = torch.neuron.metrics()["programs_dropped"]
    for length in LENGTHS:
        assert run(torch.ones(length, device=DEVICE)).sum().item() == 3 * length
    assert torch.neuron.metrics()["programs_dropped"] - dropped == len(LENGTHS) - 3
    # The last three are still there.
    before = torch.neuron.metrics()["cache_hits_memory"]
    for length in LENGTHS[-3:]:
        run(torch.ones(length, device=DEVICE))
    assert torch.neuron.metrics()["cache_hits_memory"] - before >= 3


def test_ever_new_shapes_are_warned_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchneuron.compile.compiled.MANY_PROGRAMS", 4)
    run = torch.compile(lambda x: x * 5, backend="neuron", dynamic=True)
    inputs = [torch.ones(length, device=DEVICE) for length in LENGTHS]
    with pytest.warns(UserWarning, match="Padding the dimension") as caught:
        deque(map(run, inputs), maxlen=0)
    assert sum("Padding" in str(warning.message) for warning in caught) == 1


def test_empty_and_single() -> None:
    run = torch.compile(lambda x: (x.sum(0), x * 2), backend="neuron", dynamic=True)
    for length in (0, 1, 2, 3):
        total, doubled = run(torch.ones(length, 2, device=DEVICE))
        assert total.tolist() == [length, length]
        assert doubled.shape == (length, 2)


@pytest.mark.parametrize("dynamic", [True, None])
def test_float_arguments_compile_once(dynamic: bool | None) -> None:
    run = torch.compile(lambda x, f: x * f, backend="neuron", fullgraph=True, dynamic=dynamic)
    x = torch.ones(2, device=DEVICE)
    for value in (0.5, 1.5, 2.5, 3.5):
        assert run(x, value).tolist() == [value, value]
    before = graphs()
    for value in (4.5, 5.5, 6.5):
        assert run(x, value).tolist() == [value, value]
    assert graphs() == before


def test_a_float_result_made_of_a_float_argument() -> None:
    run = torch.compile(lambda x, f: (x * f, f * 2.5), backend="neuron", dynamic=True)
    for value in (0.5, 1.5, 2.5, 1.5):
        product, number = run(torch.ones(2, device=DEVICE), value)
        assert product.tolist() == [value, value]
        assert number == value * 2.5


class Attentive(nn.Module):
    """A GPT's block in small: normalisations, whose eps are floats, around causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm, self.last = nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: (batch, length) -> (batch, length, 8)."""
        x = self.embed(ids)
        shape = (*ids.shape, 3, 2, 4)
        q, k, v = self.qkv(self.norm(x)).view(shape).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.last(x + y.transpose(1, 2).reshape(x.shape))


def test_a_gpt_is_traced_once() -> None:
    torch.manual_seed(0)
    net = Attentive()
    run = torch.compile(copy.deepcopy(net).to(DEVICE), backend="neuron", dynamic=True)
    traced, captured = traces(), counters["aot_autograd"]["total"]
    clear_compilation_metrics()  # only so many are kept
    with torch.no_grad():
        for length in LENGTHS:
            ids = torch.randint(11, (6, length))
            found = run(ids.to(DEVICE)).cpu()
            torch.testing.assert_close(found, net(ids), rtol=1e-4, atol=1e-5)
    assert traces() - traced == 1
    assert counters["aot_autograd"]["total"] - captured == 1
    # TorchDynamo did not start over either, and notices another eps.
    (traced_once,) = (m for m in get_compilation_metrics() if m.co_name == "forward")
    assert not traced_once.restart_reasons
    with torch.no_grad():
        net.last.eps = run.last.eps = 0.5
        found = run(ids.to(DEVICE)).cpu()
        torch.testing.assert_close(found, net(ids), rtol=1e-4, atol=1e-5)
