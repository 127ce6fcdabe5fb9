"""FakeTensorMode: shapes and devices without data."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def test_factories_and_operations() -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, device="neuron")
        y = torch.randn(3, 4, device="neuron:1")
        z = x @ y.to("neuron")
    assert isinstance(z, FakeTensor)
    assert z.device == torch.device("neuron:0")
    assert y.device == torch.device("neuron:1")
    assert z.shape == (2, 4)


def test_fakes_of_real_tensors() -> None:
    real = torch.ones(2, 3, device="neuron:1")
    mode = FakeTensorMode()
    fake = mode.from_tensor(real)
    with mode:
        result = torch.nn.functional.linear(fake, torch.empty(5, 3, device="neuron:1"))
    assert result.device == real.device
    assert result.shape == (2, 5)
    assert fake.device == real.device


def test_nothing_runs() -> None:
    torch.neuron.synchronize()
    torch.neuron.reset_metrics()
    with FakeTensorMode():
        x = torch.zeros(1 << 20, 1 << 20, device="neuron")
        (x @ x).relu_().sum()
    assert torch.neuron.metrics()["executions"] == 0


def test_moving_between_devices() -> None:
    with FakeTensorMode():
        x = torch.ones(2)
        assert x.to("neuron").device == torch.device("neuron:0")
        assert x.to("neuron:1").cpu().device.type == "cpu"
        assert x.neuron().device.type == "neuron"
        assert torch.ones(2, device="neuron").to(torch.float16).dtype == torch.float16


def test_mixed_devices_are_refused() -> None:
    with FakeTensorMode():
        x, y = torch.ones(2, device="neuron"), torch.ones(2)
        with pytest.raises(RuntimeError, match="device"):
            x + y


def test_convolutions_and_attention() -> None:
    with FakeTensorMode():
        x = torch.empty(1, 3, 8, 8, device="neuron")
        y = torch.nn.Conv2d(3, 4, 3, device="neuron")(x)
        q = torch.empty(1, 2, 5, 8, device="neuron")
        out = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert y.shape == (1, 4, 6, 6)
    assert out.shape == q.shape
    assert out.device == q.device == y.device


def test_parameters_and_autograd() -> None:
    with FakeTensorMode():
        model = torch.nn.Linear(3, 2, device="neuron")
        loss = model(torch.ones(4, 3, device="neuron")).sum()
        loss.backward()
    assert model.weight.grad is not None
    assert model.weight.grad.device.type == "neuron"
    assert model.weight.grad.shape == (2, 3)


def test_meta_tensors_materialize() -> None:
    model = torch.nn.Linear(3, 2, device="meta").to_empty(device="neuron")
    assert model.weight.device.type == "neuron"
    model.reset_parameters()
    assert model(torch.ones(1, 3, device="neuron")).shape == (1, 2)
