"""Activation checkpointing, swap_tensors, parametrizations: code that moves tensors about."""

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, get_device_states


@pytest.mark.parametrize("reentrant", [False, True])
def test_dropout_is_recomputed_with_the_same_numbers(reentrant: bool) -> None:
    x = torch.ones(64, device="neuron", requires_grad=True)

    def drop(value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(value * 2, 0.5)

    y = checkpoint(drop, x, use_reentrant=reentrant)
    torch.rand(8, device="neuron")  # the state has moved on when it is recomputed
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.cpu().equal(torch.where(y.detach().cpu() != 0, 4.0, 0.0))


def test_device_states_are_saved_for_the_devices_of_the_arguments() -> None:
    torch.neuron.manual_seed_all(3)
    x = torch.zeros(1, device="neuron:1")
    devices, states = get_device_states(x)
    assert devices == [1]
    assert states[0].equal(torch.neuron.get_rng_state(1))


def test_checkpointed_models_match(tmp_path) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3))).to("neuron")
    x = torch.randn(2, 4).to("neuron").requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None
    expected = x.grad.cpu()
    x.grad = None
    checkpoint_sequential(model, 3, x, use_reentrant=False).sum().backward()
    assert x.grad.cpu().allclose(expected)


def test_checkpoint_with_autocast() -> None:
    layer = torch.nn.Linear(4, 4).to("neuron")
    x = torch.ones(2, 4, device="neuron", requires_grad=True)
    with torch.autocast("neuron", dtype=torch.bfloat16):
        y = checkpoint(layer, x, use_reentrant=False)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


def test_saved_tensors_on_the_host() -> None:
    x = torch.arange(4.0, device="neuron", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 2, 4, 6]


def test_swap_tensors() -> None:
    x, y = torch.ones(2, device="neuron"), torch.zeros(3)
    torch.utils.swap_tensors(x, y)
    assert x.device.type == "cpu"
    assert x.shape == (3,)
    assert y.device.type == "neuron"
    assert y.tolist() == [1, 1]


def test_modules_convert_by_swapping() -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = torch.nn.Linear(2, 2)
        weight = model.weight
        model.to("neuron")
        assert model.weight is weight
        assert weight.device.type == "neuron"
        model.to("cpu")
        assert weight.device.type == "cpu"
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_parametrizations() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 3)
    parametrizations.weight_norm(layer)
    x = torch.randn(2, 4)
    expected = layer(x)
    layer.to("neuron")
    assert parametrize.is_parametrized(layer, "weight")
    assert layer(x.to("neuron")).cpu().allclose(expected, atol=1e-5)
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight.device.type == "neuron"


def test_functional_call_and_parameter_vectors() -> None:
    model = torch.nn.Linear(2, 2).to("neuron")
    doubled = {name: value.detach() * 0 + 1 for name, value in model.named_parameters()}
    result = torch.func.functional_call(model, doubled, torch.ones(1, 2, device="neuron"))
    assert result.tolist() == [[3, 3]]
    vector = torch.nn.utils.parameters_to_vector(model.parameters())
    assert vector.device.type == "neuron"
    torch.nn.utils.vector_to_parameters(torch.zeros_like(vector), model.parameters())
    assert model.weight.abs().sum().item() == 0


def test_module_conversions_keep_ties() -> None:
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    model["b"].weight = model["a"].weight
    model.to("neuron")
    assert model["a"].weight is model["b"].weight


def test_hooks_and_gradient_accumulation() -> None:
    seen = []
    x = torch.ones(2, device="neuron", requires_grad=True)
    x.register_hook(lambda grad: seen.append(grad.device.type))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    for _ in range(2):
        (x * 3).sum().backward()
    assert seen == ["neuron", [3, 3], "neuron", [6, 6]]
