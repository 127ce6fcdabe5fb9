"""What varies from step to step is an operand: it compiles nothing."""

import torch

DEVICE = "neuron"


def compiled() -> int:
    count: int = (
        torch.neuron.metrics()["programs_compiled"] + torch.neuron.metrics()["cache_hits_disk"]
    )
    return count


def test_a_kv_cache_write_at_a_moving_position_compiles_once() -> None:
    cache = torch.zeros(2, 16, 4, device=DEVICE)
    expected = torch.zeros(2, 16, 4)
    counts = []
    for position in range(16):
        value = torch.full((2, 1, 4), float(position + 1))
        cache[:, position : position + 1] = value.to(DEVICE)
        expected[:, position : position + 1] = value
        counts.append(compiled())
    torch.testing.assert_close(cache.cpu(), expected)
    assert counts[-1] == counts[0]


def test_reading_at_a_moving_position_compiles_once() -> None:
    data = torch.arange(40.0, device=DEVICE)
    seen = [(data[i : i + 3] * 2).tolist() for i in range(2)]
    before = compiled()
    seen += [(data[i : i + 3] * 2).tolist() for i in range(2, 30)]
    assert seen == [[2.0 * (i + k) for k in range(3)] for i in range(30)]
    assert compiled() == before


def test_scalars_are_operands() -> None:
    x = torch.arange(4.0, device=DEVICE)
    (x * 1.5 + 2).add_(x, alpha=3.0)
    before = compiled()
    for scale in (0.1, 7.0, -2.5):
        result = (x * scale + 2).add_(x, alpha=scale)
        torch.testing.assert_close(
            result.cpu(), torch.arange(4.0) * scale + 2 + torch.arange(4.0) * scale
        )
    assert compiled() == before


def test_a_learning_rate_schedule_compiles_nothing_after_the_second_step() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(
        DEVICE
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    x, y = torch.randn(16, 4).to(DEVICE), torch.randn(16, 1).to(DEVICE)
    counts, losses = [], []
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        counts.append(compiled())
    assert counts[-1] == counts[1]
    assert losses[-1] < losses[0]


def test_random_state_is_an_operand() -> None:
    torch.rand(5, device=DEVICE)
    before = compiled()
    draws = {tuple(torch.rand(5, device=DEVICE).tolist()) for _ in range(4)}
    assert len(draws) == 4
    assert compiled() == before


def test_an_optimizer_step_is_a_program_per_foreach_call() -> None:
    parameters = [torch.nn.Parameter(torch.randn(3, 3).to(DEVICE)) for _ in range(20)]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    torch.neuron.synchronize()
    before = torch.neuron.metrics()["executions"]
    optimizer.step()
    torch.neuron.synchronize()
    assert torch.neuron.metrics()["executions"] - before <= 4
