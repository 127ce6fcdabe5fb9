"""Printing tensors."""

import gc

import pytest
import torch

HOST = {
    "floats": torch.tensor([1.0, -2.5, 3e-5]),
    "whole floats": torch.ones(2, 3),
    "matrix": torch.linspace(-3, 3, 12).reshape(3, 4),
    "large": torch.arange(5000.0).reshape(50, 100),
    "integers": torch.arange(6).reshape(2, 3),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(3.25),
    "empty": torch.empty(0, 2),
    "special values": torch.tensor([float("inf"), float("nan"), 0.0]),
    "complex": torch.tensor([1 + 2j, -0.5j]),
    "half": torch.tensor([1.5, 2.25], dtype=torch.float16),
    "bfloat16": torch.tensor([1.5, 2.25], dtype=torch.bfloat16),
    "uint8": torch.tensor([1, 255], dtype=torch.uint8),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "channels last": torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("name", HOST)
def test_prints_like_the_cpu_with_the_device(name: str) -> None:
    host = HOST[name]
    text = repr(host.to("neuron"))
    assert "device='neuron:0'" in text
    plain = "".join(text.replace("device='neuron:0'", "").split()).replace(",", "")
    assert plain == "".join(repr(host).split()).replace(",", "")


def test_other_devices_and_gradients_are_shown() -> None:
    x = torch.ones(2, device="neuron:1", requires_grad=True)
    assert repr(x) == "tensor([1., 1.], device='neuron:1', requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 2.], device='neuron:1', grad_fn=<MulBackward0>)"
    parameter = torch.nn.Parameter(torch.ones(1, device="neuron"))
    assert repr(parameter).startswith("Parameter containing:\ntensor([1.], device='neuron:0'")


def test_formatting_of_scalars() -> None:
    x = torch.tensor(1.23456, device="neuron")
    assert f"{x:.2f}" == "1.23"
    assert f"{torch.tensor(7, device='neuron'):04d}" == "0007"
    assert str(torch.tensor(5, device="neuron")) == "tensor(5, device='neuron:0')"


def test_printing_changes_nothing() -> None:
    x = torch.arange(4.0, device="neuron")
    repr(x)
    gc.collect()
    version, memory = x._version, torch.neuron.memory_allocated()
    repr(x)
    assert x._version == version
    assert torch.neuron.memory_allocated() == memory


def test_printing_the_same_shape_again_compiles_nothing() -> None:
    x = torch.arange(6.0, device="neuron")
    repr(x)
    torch.neuron.reset_metrics()
    repr(x + 0.5)
    repr(x)
    assert torch.neuron.metrics()["programs_compiled"] <= 1


def test_generators_streams_and_events_print() -> None:
    assert "neuron" in repr(torch.neuron.Stream())
    assert "neuron" in repr(torch.neuron.Event())
    assert "Generator" in repr(torch.Generator("neuron"))
