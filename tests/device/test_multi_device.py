"""Several devices in one process."""

import pytest
import torch

COUNT = torch.neuron.device_count()


def test_copies_between_devices() -> None:
    x = torch.arange(6.0, device="neuron:0").reshape(2, 3)
    y = x.to("neuron:1")
    assert y.device.index == 1
    assert y.tolist() == x.tolist()
    y.add_(1)
    assert x[0, 0].item() == 0
    x.copy_(y)
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert x.to("neuron:0") is x
    assert x.to("neuron:0", copy=True).data_ptr() != x.data_ptr()


def test_copies_convert_broadcast_and_take_views() -> None:
    x = torch.arange(6, device="neuron:0").reshape(2, 3)
    assert x.t()[1:].to("neuron:1").tolist() == [[1, 4], [2, 5]]
    assert x.to("neuron:1", torch.float16).dtype == torch.float16
    y = torch.zeros(4, 2, 3, device="neuron:1")
    y[1::2].copy_(x)
    assert y.sum().item() == 30
    assert y[0].sum().item() == 0
    z = torch.zeros(2, 3, device="neuron:1")
    z[:, 1] = x[:, 2]
    assert z.tolist() == [[0, 2, 0], [0, 5, 0]]
    assert x.expand(2, 2, 3).to("neuron:1").shape == (2, 2, 3)
    assert torch.empty(0, 3, device="neuron:0").to("neuron:1").shape == (0, 3)


def test_every_device_computes() -> None:
    results = [torch.full((3,), float(i), device=f"neuron:{i}") * 2 for i in range(COUNT)]
    for index, result in enumerate(results):
        assert result.device.index == index
        assert result.tolist() == [2.0 * index] * 3
    total = sum(result.to("neuron:0") for result in results)
    assert total[0].item() == COUNT * (COUNT - 1)


def test_programs_are_shared_by_devices_or_loaded_once_each() -> None:
    x = [torch.ones(5, device=f"neuron:{i}") for i in (0, 1)]
    for _ in range(2):
        for tensor in x:
            tensor.mul_(3)
    for index in (0, 1):
        torch.neuron.synchronize(index)
    torch.neuron.reset_metrics()
    for tensor in x:
        tensor.mul_(3)
    for index in (0, 1):
        torch.neuron.synchronize(index)
    counts = torch.neuron.metrics()
    assert counts["programs_compiled"] == 0
    assert counts["executions"] == 2
    assert [tensor[0].item() for tensor in x] == [27, 27]


def test_gradients_cross_devices() -> None:
    x = torch.ones(3, device="neuron:0", requires_grad=True)
    w = torch.full((3,), 2.0, device="neuron:1", requires_grad=True)
    (x.to("neuron:1") * w).sum().backward()
    assert x.grad is not None
    assert x.grad.device.index == 0
    assert x.grad.tolist() == [2, 2, 2]
    assert w.grad is not None
    assert w.grad.device.index == 1


def test_a_model_split_over_two_devices_trains_like_on_one() -> None:
    def train(first: str, second: str) -> list[float]:
        torch.manual_seed(0)
        a, b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
        a.to(first)
        b.to(second)
        optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
        x, losses = torch.linspace(-1, 1, 20).reshape(5, 4), []
        for _ in range(3):
            optimizer.zero_grad()
            loss = b(a(x.to(first)).relu().to(second)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert train("neuron:0", "neuron:1") == pytest.approx(train("cpu", "cpu"), rel=1e-5)


def test_synchronize_takes_a_device() -> None:
    for index in range(COUNT):
        torch.neuron.synchronize(index)
        torch.neuron.synchronize(torch.device("neuron", index))


def test_modules_move_between_devices() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).to("neuron:0")
    expected = {name: value.cpu() for name, value in model.state_dict().items()}
    model.to("neuron:1")
    for name, value in model.state_dict().items():
        assert value.device.index == 1
        assert value.cpu().equal(expected[name])
