"""Loops that windows are not made for give what they give in strict mode and on the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.adaptive.hostile import run
from torchneuron import _C, device

DEVICE = "neuron"
ITERATIONS = 20


@pytest.mark.usefixtures("adaptive")
@pytest.mark.parametrize("random_numbers", [False, True])
@pytest.mark.parametrize("seed", [2, 4, 7])
def test_random_loops_equal_strict_mode_and_the_cpu(seed: int, random_numbers: bool) -> None:
    with torch.neuron.eager_mode("strict"):
        strict = run(seed, DEVICE, ITERATIONS, random_numbers)
    before = device.metrics()["ops_in_windows"]
    _C.set_window_tuning(sightings=2, min_steps=2, max_windows=10_000, wait=True, trials=0)
    adaptive = run(seed, DEVICE, ITERATIONS, random_numbers)
    assert device.metrics()["ops_in_windows"] > before
    torch.testing.assert_close(adaptive, strict)
    if not random_numbers:
        torch.testing.assert_close(adaptive, run(seed, "cpu", ITERATIONS), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("adaptive")
def test_a_full_memory_costs_the_operation_only() -> None:
    x = torch.ones(1000, device=DEVICE)

    def window() -> torch.Tensor:
        y = x * 3 + 1
        x.add_(1)
        return (y - x).tanh()

    limit = _C.memory_limit()
    for step in range(12):
        value = window()
        if step % 4 == 3:
            _C.set_memory_limit(torch.neuron.memory_allocated() + 1000)
            try:
                with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
                    window()
            finally:
                _C.set_memory_limit(limit)
            window()
        value.sum().item()
    # The failed attempts came to nothing, neither in part: x * 3 found no room.
    assert x[0].item() == 1 + 12 + 3


@pytest.mark.usefixtures("adaptive")
def test_values_go_between_devices_and_streams() -> None:
    totals = []
    for step in range(12):
        a = torch.full((8,), float(step), device="neuron:0") * 2 + 1
        b = a.to("neuron:1") * 3 - 1
        stream = torch.neuron.Stream(device="neuron:0")
        stream.wait_stream(torch.neuron.current_stream(torch.device("neuron:0")))
        with torch.neuron.stream(stream):
            c = b.to("neuron:0") + a
            c.mul_(0.5)
        torch.neuron.current_stream(torch.device("neuron:0")).wait_stream(stream)
        totals.append((c + a).sum().item())
    expected = [8 * (((2 * s + 1) * 3 - 1 + 2 * s + 1) * 0.5 + 2 * s + 1) for s in range(12)]
    assert totals == expected
