"""LSTM, GRU and Elman layers: one program per layer and direction, results and gradients as on the CPU."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

CELLS = [
    pytest.param(nn.LSTM, {}, id="lstm"),
    pytest.param(nn.GRU, {}, id="gru"),
    pytest.param(nn.RNN, {}, id="tanh"),
    pytest.param(nn.RNN, {"nonlinearity": "relu"}, id="relu"),
]


@pytest.fixture(autouse=True)
def _setup(no_fallback: None) -> None:
    torch.manual_seed(0)


def _pair(cell: Any, **options: Any) -> tuple[nn.Module, nn.Module]:
    module = cell(5, 7, **options)
    return module, copy.deepcopy(module).to("neuron")


def _outputs(result: tuple[Tensor, Any]) -> list[Tensor]:
    y, state = result
    return [y, *(state if isinstance(state, tuple) else (state,))]


def _results_and_gradients(module: nn.Module, *inputs: Tensor, which: int = 3) -> list[Tensor]:
    """Outputs, and what their first ``which`` give the inputs and parameters."""
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    x, *state = leaves
    given = (x,) if not state else (x, state[0] if len(state) == 1 else tuple(state))
    outputs = _outputs(module(*given))
    total = sum((value.double().sin() * (k + 1)).sum() for k, value in enumerate(outputs[:which]))
    sources = [*leaves, *module.parameters()]
    gradients = torch.autograd.grad(total, sources, allow_unused=True)
    assert all(gradient is not None for gradient in gradients)
    return [*outputs, *gradients]


@pytest.mark.parametrize(("cell", "options"), CELLS)
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param({}, id="plain"),
        pytest.param({"num_layers": 2, "bidirectional": True, "batch_first": True}, id="deep"),
        pytest.param({"bias": False, "bidirectional": True}, id="no-bias"),
    ],
)
def test_layers(cell: Any, options: dict[str, Any], shape: dict[str, Any]) -> None:
    host, device = _pair(cell, **options, **shape)
    x = torch.randn(4, 6, 5)
    expected = _results_and_gradients(host, x)
    actual = _results_and_gradients(device, x.to("neuron"))
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.cpu(), e)


@pytest.mark.parametrize(("cell", "options"), CELLS)
@pytest.mark.parametrize("which", [1, 3])
def test_initial_state(cell: Any, options: dict[str, Any], which: int) -> None:
    """Also where nothing depends on the last state."""
    host, device = _pair(cell, **options)
    inputs = [torch.randn(4, 3, 5), torch.randn(1, 3, 7)]
    if cell is nn.LSTM:
        inputs.append(torch.randn(1, 3, 7))
    expected = _results_and_gradients(host, *inputs, which=which)
    actual = _results_and_gradients(device, *(x.to("neuron") for x in inputs), which=which)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.cpu(), e)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    """Narrow dtypes against float32: PyTorch's CPU rounds after each op."""
    host = nn.LSTM(5, 7).to(dtype)
    device = copy.deepcopy(host).to("neuron")
    x = torch.randn(4, 3, 5, dtype=dtype)
    reference = host.float() if dtype is torch.bfloat16 else host
    expected = _results_and_gradients(reference, x.to(next(reference.parameters()).dtype))
    actual = _results_and_gradients(device, x.to("neuron"))
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype is dtype
        # Four steps of a recurrence, each of which rounds h to 8 bits.
        rounding = {"rtol": 0.05, "atol": 0.05} if dtype is torch.bfloat16 else {}
        torch.testing.assert_close(a.cpu().to(e.dtype), e, **rounding)


@pytest.mark.parametrize(("cell", "options"), CELLS)
def test_gradient_of_the_gradient(cell: Any, options: dict[str, Any]) -> None:
    found = []
    host, device = _pair(cell, bidirectional=True, **options)
    x = torch.randn(3, 2, 5)
    for module, name in ((host, "cpu"), (device, "neuron")):
        leaf = x.to(name).requires_grad_() if name == "neuron" else x.clone().requires_grad_()
        y, _ = module(leaf)
        (first,) = torch.autograd.grad(y.square().sum(), leaf, create_graph=True)
        second = torch.autograd.grad(
            first.square().sum(), [leaf, *module.parameters()], allow_unused=True
        )
        found.append([first, *second])
    for a, e in zip(found[1], found[0], strict=True):
        if e is None:
            assert a is None or not a.any()
        else:
            torch.testing.assert_close(a.cpu(), e)


def test_without_gradients() -> None:
    host, device = _pair(nn.LSTM, num_layers=2)
    x = torch.randn(4, 3, 5)
    expected = _outputs(host(x))
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            for a, e in zip(_outputs(device(x.to("neuron"))), expected, strict=True):
                torch.testing.assert_close(a.cpu(), e.detach())


def test_frozen_parts_get_no_gradient() -> None:
    host, device = _pair(nn.GRU)
    x = torch.randn(4, 3, 5)
    for module in (host, device):
        module.weight_ih_l0.requires_grad_(False)
    host(x)[0].sum().backward()
    device(x.to("neuron"))[0].sum().backward()
    for a, e in zip(device.parameters(), host.parameters(), strict=True):
        assert (a.grad is None) == (e.grad is None)
        if e.grad is not None:
            torch.testing.assert_close(a.grad.cpu(), e.grad)


@pytest.mark.parametrize("batch_first", [False, True])
def test_programs_run_do_not_grow_with_steps(batch_first: bool) -> None:
    _, device = _pair(nn.LSTM, batch_first=batch_first)
    counts = []
    for steps in (3, 9):
        x = torch.randn((2, steps, 5) if batch_first else (steps, 2, 5)).to("neuron")
        before = torch.neuron.metrics()["executions"]
        with torch.no_grad():
            device(x)
        torch.neuron.synchronize()
        counts.append(torch.neuron.metrics()["executions"] - before)
    assert counts[0] == counts[1]


def test_dropout_between_layers_draws() -> None:
    device = nn.LSTM(5, 7, num_layers=2, dropout=0.5).to("neuron")
    x = torch.randn(4, 3, 5).to("neuron")
    assert not torch.equal(device(x)[0].cpu(), device(x)[0].cpu())
    device.eval()
    assert torch.equal(device(x)[0].cpu(), device(x)[0].cpu())


def test_autocast() -> None:
    host, device = _pair(nn.LSTM)
    x = torch.randn(4, 3, 5)
    with torch.autocast("neuron"):
        y, _ = device(x.to("neuron"))
    assert y.dtype is torch.bfloat16
    y.float().sum().backward()
    assert device.weight_hh_l0.grad.dtype is torch.float32
    torch.testing.assert_close(y.float().cpu(), host(x)[0], rtol=0.02, atol=0.02)


def test_what_takes_the_way_by_steps() -> None:
    host, device = _pair(nn.LSTM)
    x = torch.randn(4, 2, 5)
    packed = [pack_padded_sequence(value, [4, 2]) for value in (x, x.to("neuron"))]
    torch.testing.assert_close(device(packed[1])[0].data.cpu(), host(packed[0])[0].data)
    projected = nn.LSTM(5, 7, proj_size=3)
    expected = projected(x)[0]
    torch.testing.assert_close(projected.to("neuron")(x.to("neuron"))[0].cpu(), expected)
    gradients = [
        torch.func.grad(lambda value, module=module: module(value)[0].sum())(value)
        for module, value in ((host, x), (device, x.to("neuron")))
    ]
    torch.testing.assert_close(gradients[1].cpu(), gradients[0])


def test_wrong_operands() -> None:
    weights = [value.to("neuron") for value in nn.LSTM(5, 7).parameters()]
    x, state = torch.randn(4, 3, 5, device="neuron"), torch.zeros(1, 3, 7, device="neuron")
    options = (True, 1, 0.0, False, False, False)
    with pytest.raises(RuntimeError, match="two hidden states"):
        torch.ops.aten.lstm.input(x, [state], weights, *options)
    with pytest.raises(RuntimeError):
        torch.ops.aten.lstm.input(x[:, :, :4], [state, state], weights, *options)
