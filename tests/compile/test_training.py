"""Compiled training: gradients, randomness, autocast, checkpointing, hooks, optimizers, compiled autograd."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

DEVICE = "neuron"


class Net(nn.Module):
    """A little of everything, with a weight used twice."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.dropout = nn.Dropout(dropout)

    def block(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.block(self.embed(ids)) @ self.embed.weight.t()


def pair(**arguments: Any) -> tuple[Net, Net]:
    torch.manual_seed(0)
    cpu = Net(**arguments)
    return cpu, copy.deepcopy(cpu).to(DEVICE)


def loss_of(run: Callable[..., Any], ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(run(ids).flatten(0, -2), ids.flatten())


def same_parameters(device: nn.Module, cpu: nn.Module, **tolerance: float) -> None:
    for (name, one), (_, other) in zip(
        device.named_parameters(), cpu.named_parameters(), strict=True
    ):
        torch.testing.assert_close(one.cpu(), other, msg=lambda m, n=name: f"{n}: {m}", **tolerance)


def same_gradients(device: nn.Module, cpu: nn.Module, **tolerance: float) -> None:
    for (name, one), (_, other) in zip(
        device.named_parameters(), cpu.named_parameters(), strict=True
    ):
        assert one.grad is not None, name
        assert one.grad.device.type == DEVICE
        assert one.grad.stride() == other.grad.stride(), name  # type: ignore[union-attr]
        torch.testing.assert_close(one.grad.cpu(), other.grad, **tolerance)


IDS = torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(1))


def test_gradients_accumulate_as_in_eager() -> None:
    cpu, device = pair()
    run = torch.compile(device, backend="neuron", fullgraph=True)
    for _ in range(2):
        loss_of(cpu, IDS).backward()
        loss_of(run, IDS.to(DEVICE)).backward()
    same_gradients(device, cpu)


def test_gradients_of_inputs_and_double_use() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x * y).sum(0), x.t() @ x, y.detach() * 2

    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    dx, dy = x.detach().to(DEVICE).requires_grad_(), y.to(DEVICE)
    for one, other in zip(
        torch.compile(function, backend="neuron", fullgraph=True)(dx, dy),
        function(x, y),
        strict=True,
    ):
        assert one.requires_grad == other.requires_grad
        if one.requires_grad:
            one.sum().backward(retain_graph=True)
            other.sum().backward(retain_graph=True)
    torch.testing.assert_close(dx.grad.cpu(), x.grad)  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode: Callable[[], Any]) -> None:
    cpu, device = pair()
    run = torch.compile(device, backend="neuron", fullgraph=True)
    with mode():
        found = run(IDS.to(DEVICE))
        torch.testing.assert_close(found.cpu(), cpu(IDS))
    assert not found.requires_grad
    assert found.is_inference() == (mode is torch.inference_mode)
    assert run(IDS.to(DEVICE)).requires_grad


def test_dropout_draws_the_stream_of_eager() -> None:
    _, device = pair(dropout=0.5)
    run = torch.compile(device, backend="neuron", fullgraph=True)
    results = []
    for call in (device, run, run):
        torch.manual_seed(7)
        device.zero_grad()
        loss = loss_of(call, IDS.to(DEVICE))
        loss.backward()
        results.append((loss.detach().cpu(), device.up.weight.grad.cpu()))  # type: ignore[union-attr]
        after = torch.neuron.get_rng_state()
        results[-1] += (after,)
    for other in results[1:]:
        torch.testing.assert_close(other[:2], results[0][:2])
        assert torch.equal(other[2], results[0][2])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_activation_checkpointing_recomputes_the_same(dropout: float) -> None:
    _, device = pair(dropout=dropout)

    def with_checkpoint(ids: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(device.block, device.embed(ids), use_reentrant=False)
        return hidden @ device.embed.weight.t()

    gradients = []
    for call in (with_checkpoint, torch.compile(with_checkpoint, backend="neuron", fullgraph=True)):
        torch.manual_seed(3)
        device.zero_grad()
        loss_of(call, IDS.to(DEVICE)).backward()
        gradients.append([p.grad.cpu() for p in device.parameters() if p.grad is not None])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_random_factories_follow_the_seed() -> None:
    def function(x: torch.Tensor) -> Any:
        return x + torch.rand_like(x), torch.randn(3, device=x.device), torch.bernoulli(x)

    x = torch.full((4,), 0.5, device=DEVICE)
    run = torch.compile(function, backend="neuron", fullgraph=True)
    draws = []
    for call in (function, run, run):
        torch.manual_seed(11)
        draws.append([t.cpu() for t in call(x)])
    torch.testing.assert_close(draws[1], draws[0])
    torch.testing.assert_close(draws[2], draws[0])
    assert not torch.equal(run(x)[1].cpu(), draws[0][1])


def test_autocast() -> None:
    _, device = pair()
    run = torch.compile(device, backend="neuron", fullgraph=True)
    gradients = []
    for call in (device, run):
        device.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            logits = call(IDS.to(DEVICE))
        assert logits.dtype is torch.bfloat16
        F.cross_entropy(logits.float().flatten(0, 1), IDS.to(DEVICE).flatten()).backward()
        gradients.append([p.grad.cpu() for p in device.parameters() if p.grad is not None])
    # The compiled graph rounds to bfloat16 where eager does; sums are taken in another order.
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-2, atol=1e-3)


def test_hooks_run() -> None:
    cpu, device = pair()
    seen: list[str] = []
    for net in (cpu, device):
        net.up.register_forward_hook(lambda m, i, o: o * 2)
        net.up.weight.register_hook(lambda g: g * 3)
        net.down.register_forward_pre_hook(lambda m, i: (i[0] + 1,))
    run = torch.compile(device, backend="neuron", fullgraph=True)
    loss_of(cpu, IDS).backward()
    out = run(IDS.to(DEVICE))
    out.register_hook(lambda g: seen.append("output"))
    F.cross_entropy(out.flatten(0, -2), IDS.to(DEVICE).flatten()).backward()
    assert seen == ["output"]
    same_gradients(device, cpu)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_optimizers(name: str) -> None:
    cpu, device = pair()
    run = torch.compile(device, backend="neuron", fullgraph=True)
    optimizer, other = OPTIMIZERS[name](device.parameters()), OPTIMIZERS[name](cpu.parameters())
    step = torch.compile(optimizer.step, backend="neuron")
    for _ in range(4):
        for net, call, update, ids in (
            (cpu, cpu, other.step, IDS),
            (device, run, step, IDS.to(DEVICE)),
        ):
            net.zero_grad()
            loss_of(call, ids).backward()
            update()
    same_parameters(device, cpu, rtol=1e-4, atol=1e-5)


def test_a_learning_rate_tensor_that_changes_compiles_nothing() -> None:
    _, device = pair()
    optimizer = torch.optim.AdamW(device.parameters(), lr=torch.tensor(0.1))
    step = torch.compile(optimizer.step, backend="neuron")
    run = torch.compile(device, backend="neuron", fullgraph=True)
    compiled = []
    for index in range(6):
        optimizer.param_groups[0]["lr"].fill_(0.1 / (index + 1))
        device.zero_grad()
        loss_of(run, IDS.to(DEVICE)).backward()
        step()
        compiled.append(
            torch.neuron.metrics()["programs_compiled"] + torch.neuron.metrics()["cache_hits_disk"]
        )
    assert compiled[-1] == compiled[2]


def test_a_whole_step_under_compiled_autograd() -> None:
    cpu, device = pair()
    optimizer, other = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (device, cpu))

    def step(ids: torch.Tensor) -> torch.Tensor:
        loss = loss_of(device, ids)
        loss.backward()
        return loss

    with torch._dynamo.config.patch(compiled_autograd=True):
        run = torch.compile(step, backend="neuron")
        for _ in range(2):
            device.zero_grad()
            cpu.zero_grad()
            found = run(IDS.to(DEVICE))
            expected = loss_of(cpu, IDS)
            expected.backward()
            torch.testing.assert_close(found.detach().cpu(), expected.detach())
            same_gradients(device, cpu)
            optimizer.step()
            other.step()


def test_parameters_changed_between_calls() -> None:
    cpu, device = pair()
    run = torch.compile(device, backend="neuron", fullgraph=True)
    run(IDS.to(DEVICE))
    with torch.no_grad():
        for net in (cpu, device):
            net.up.weight.mul_(2)
            net.embed.weight[3].zero_()
    torch.testing.assert_close(run(IDS.to(DEVICE)).cpu(), cpu(IDS))
    device.load_state_dict({name: value * 0.5 for name, value in cpu.state_dict().items()})
    cpu.load_state_dict({name: value * 0.5 for name, value in cpu.state_dict().items()})
    torch.testing.assert_close(run(IDS.to(DEVICE)).cpu(), cpu(IDS))


def test_graph_breaks_inside_training() -> None:
    cpu, device = pair()

    def broken(net: Net) -> Callable[[torch.Tensor], torch.Tensor]:
        def function(ids: torch.Tensor) -> torch.Tensor:
            hidden = net.embed(ids)
            torch._dynamo.graph_break()
            return net.block(hidden) @ net.embed.weight.t()

        return function

    loss_of(broken(cpu), IDS).backward()
    loss_of(torch.compile(broken(device), backend="neuron"), IDS.to(DEVICE)).backward()
    same_gradients(device, cpu)


def test_grad_scaler_and_clipping() -> None:
    cpu, device = pair()
    run = torch.compile(device, backend="neuron", fullgraph=True)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=16.0)
    optimizer, other = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (device, cpu))
    scaler.scale(loss_of(run, IDS.to(DEVICE))).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(device.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    loss_of(cpu, IDS).backward()
    nn.utils.clip_grad_norm_(cpu.parameters(), 0.5)
    other.step()
    same_parameters(device, cpu)


def test_an_argument_on_the_cpu_has_its_gradient() -> None:
    x = torch.randn(3, requires_grad=True)
    run = torch.compile(lambda x: x.to(DEVICE).sin().sum(), backend="neuron", fullgraph=True)
    run(x).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, x.detach().cos())
