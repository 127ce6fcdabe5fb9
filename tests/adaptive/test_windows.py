"""Windows of operations run as one program give what the operations give one by one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tests.conftest import RunPython
from torchneuron import _C

DEVICE = "neuron"


def fused() -> int:
    """Operations that have run as part of a window."""
    torch.neuron.synchronize()
    ops: int = torch.neuron.metrics()["ops_in_windows"]
    return ops


def train(device: str, steps: int, every: int, dropout: float = 0.0) -> tuple[list[float], Any]:
    """Losses as read every so many steps, and the parameters."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(dropout), nn.Linear(16, 4)]
    model = nn.Sequential(*layers)
    x, y = torch.randn(6, 8), torch.randint(4, (6,))
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (step + 1)
        optimizer.step()
        if step % every == 0:
            losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


@pytest.mark.usefixtures("adaptive")
def test_what_comes_once_in_a_long_while_gets_no_program() -> None:
    _C.set_window_tuning(sightings=2, min_steps=2, wait=True, trials=0, span=20)
    x = torch.arange(5.0, device=DEVICE)

    def often() -> float:
        return (x * 2 + 1).tanh().sum().item()

    def rarely() -> float:
        return (x.sin() - 3).abs().amax().item()

    known = len(_C.window_reports())
    for _ in range(4):
        rarely()
        for _ in range(30):
            often()
    assert len(_C.window_reports()) == known + 1
    for _ in range(3):
        rarely()
    assert len(_C.window_reports()) == known + 2


@pytest.mark.usefixtures("adaptive")
@pytest.mark.parametrize("every", [1, 3, 1000])
def test_a_training_loop_runs_as_windows_and_equals_the_cpu(every: int) -> None:
    before = fused()
    losses, parameters = train(DEVICE, 60, every)
    assert fused() - before > 500
    expected_losses, expected = train("cpu", 60, every)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected_losses))
    torch.testing.assert_close(parameters, expected)


@pytest.mark.usefixtures("adaptive")
def test_random_numbers_are_those_of_strict_mode() -> None:
    before = fused()
    adaptive = train(DEVICE, 40, 5, dropout=0.5)
    assert fused() > before
    with torch.neuron.eager_mode("strict"):
        strict = train(DEVICE, 40, 5, dropout=0.5)
    torch.testing.assert_close(torch.tensor(adaptive[0]), torch.tensor(strict[0]))
    torch.testing.assert_close(adaptive[1], strict[1])


@pytest.mark.usefixtures("adaptive")
def test_the_windows_do_not_grow_with_the_logging_interval() -> None:
    train(DEVICE, 60, 7)
    first = torch.neuron.metrics()
    train(DEVICE, 200, 7)
    second = torch.neuron.metrics()
    # The new model's operations are the old one's: at most what its last windows had not seen yet.
    made = [m["windows_compiled"] + m["windows_from_disk"] for m in (first, second)]
    assert made[1] - made[0] <= 4
    assert second["ops_in_windows"] - first["ops_in_windows"] > 2000


def repeat(function: Callable[[], Any], times: int = 8) -> list[Any]:
    return [function() for _ in range(times)]


@pytest.mark.usefixtures("adaptive")
def test_values_that_the_user_keeps_are_there() -> None:
    x = torch.arange(6.0, device=DEVICE)

    def chain() -> tuple[torch.Tensor, torch.Tensor, float]:
        a = x + 1
        b = a * 2
        c = b - x
        return a, b, c.sum().item()

    before = fused()
    kept = repeat(chain)
    assert fused() > before
    for a, b, c in kept:
        assert a.tolist() == [1, 2, 3, 4, 5, 6]
        assert b.tolist() == [2, 4, 6, 8, 10, 12]
        assert c == 27


@pytest.mark.usefixtures("adaptive")
def test_what_is_kept_may_change_from_run_to_run() -> None:
    x = torch.arange(4.0, device=DEVICE)
    kept = []
    for step in range(24):
        a = x + step
        b = a * 2
        c = b + 1
        kept.append([a, b, c][step % 3])
        (c - 1).sum().item()
    for step, value in enumerate(kept):
        a = torch.arange(4.0) + step
        torch.testing.assert_close(value.cpu(), [a, a * 2, a * 2 + 1][step % 3])


@pytest.mark.usefixtures("adaptive")
def test_updates_in_place_leave_older_values_alone() -> None:
    w = torch.zeros(5, device=DEVICE)
    snapshots = []
    before = fused()
    for step in range(12):
        w.add_(1)
        w.mul_(2)
        snapshots.append(w.clone())
        w[1:3].sub_(1)
        if step % 2:
            w.sum().item()
    assert fused() > before
    expected = torch.zeros(5)
    for snapshot in snapshots:
        expected = (expected + 1) * 2
        torch.testing.assert_close(snapshot.cpu(), expected)
        expected[1:3] -= 1


OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b * 0.5,
    "transpose": lambda a, b: a.t().contiguous(),
    "add_": lambda a, b: a.add_(b),
    "row_": lambda a, b: a.index_fill_(0, torch.tensor([1], device=a.device), 0.25),
    "slice_": lambda a, b: (a[1:].mul_(0.5), a)[1],
    "view": lambda a, b: a[:, :2].repeat(1, 2)[:, :3],
    "softmax": lambda a, b: a.softmax(-1),
    "where": lambda a, b: torch.where(a > b, a, b),
}


@pytest.mark.usefixtures("adaptive")
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.booleans()), max_size=8))
def test_random_chains_equal_the_cpu(chain: list[tuple[str, bool]]) -> None:
    def run(device: str) -> list[torch.Tensor]:
        a = torch.linspace(-1, 1, 9).view(3, 3).to(device)
        b, kept = a.flip(0).clone(), []
        for _ in range(5):
            for name, keep in chain:
                a = OPERATIONS[name](a, b)
                if keep:
                    kept.append(a.clone())
            b = (a + b) * 0.5
            kept.append(b.sum().cpu())
        return [value.cpu() for value in kept]

    torch.testing.assert_close(run(DEVICE), run("cpu"))


@pytest.mark.usefixtures("adaptive")
@pytest.mark.parametrize("period", [1, 2, 3, 7, 8, 9])
def test_operations_repeat_for_long_before_anything_is_read(period: int) -> None:
    x = torch.zeros(5, device=DEVICE)
    for step in range(1203):
        x = x + 1 if step % period else x - 2
    ones = sum(1 if step % period else -2 for step in range(1203))
    assert x.tolist() == [float(ones)] * 5


@pytest.mark.usefixtures("adaptive")
def test_changing_shapes_are_right() -> None:
    totals = []
    for step in range(30):
        x = torch.ones(2 + step % 3, 4, device=DEVICE)
        totals.append(((x * 3).relu() + 1).sum().item())
    assert totals == [(2 + step % 3) * 16.0 for step in range(30)]


@pytest.mark.usefixtures("adaptive")
def test_errors_come_from_the_call_that_made_them() -> None:
    x = torch.ones(3, device=DEVICE)
    for _ in range(6):
        ((x + 1) * 2).sum().item()
    y = x + 1
    with pytest.raises(RuntimeError, match="broadcast"):
        y + torch.ones(4, device=DEVICE)
    assert (y * 2).sum().item() == 12


ACROSS_STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "exp(a) exp(b)": lambda a, b: a.exp() * b.exp(),
    "exp(a) / exp(b)": lambda a, b: a.exp() / b.exp(),
    "log(exp(a))": lambda a, b: a.exp().log(),
    "log(a ** b)": lambda a, b: a.abs().pow(b).log(),
    "exp(a) ** b": lambda a, b: a.exp().pow(torch.full_like(b, 0.25)),
    "sqrt(a) sqrt(a)": lambda a, b: (lambda root: root * root)(a.abs().sqrt()),
    "sqrt(a a)": lambda a, b: (lambda large: (large * large).sqrt())(a * 1e25),
    "a / b / c": lambda a, b: torch.full_like(a, 1e30) / b / torch.full_like(a, 1e30),
    "a / (b / c)": lambda a, b: a * 1e20 / (torch.full_like(a, 1e30) / (a * 1e20)),
    "a / sqrt(b)": lambda a, b: a / b.abs().sqrt(),
    "0 + a": lambda a, b: 1 / (torch.zeros_like(a) + b * 0),
    "sum(constant)": lambda a, b: torch.full((10_000,), 0.1, device=a.device).sum(),
}


@pytest.mark.usefixtures("adaptive")
@pytest.mark.parametrize("name", ACROSS_STEPS)
def test_the_compiler_does_not_simplify_from_one_operation_to_the_next(name: str) -> None:
    values = [100.0, -100.0, 0.5, 3.0, 1e-5, 90.0, -2.0, 0.0, 1e-20, 1e20, -0.0, 0.3]
    a = torch.tensor(values, device=DEVICE)
    b = torch.tensor([*values[4:], *values[:4]], device=DEVICE)

    def run() -> list[float]:
        return [ACROSS_STEPS[name](a, b).cpu().flatten() for _ in range(5)][-1].tolist()  # type: ignore[no-any-return]

    with torch.neuron.eager_mode("strict"):
        strict = run()
    before = fused()
    adaptive = run()
    assert fused() > before
    assert torch.tensor(adaptive).view(torch.int32).tolist() == (
        torch.tensor(strict).view(torch.int32).tolist()
    )


@pytest.mark.usefixtures("adaptive")
def test_deterministic_algorithms_run_one_by_one() -> None:
    x = torch.ones(7, device=DEVICE)
    before = fused()
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(6):
            ((x + 2) * 3).sum().item()
    finally:
        torch.use_deterministic_algorithms(False)
    assert fused() == before
    for _ in range(6):
        ((x + 2) * 3).sum().item()
    assert fused() > before


def test_the_mode_is_the_blocks() -> None:
    before = _C.eager_mode()
    with torch.neuron.eager_mode("blocking"):
        assert _C.eager_mode() == "blocking"
    assert _C.eager_mode() == before
    with (
        pytest.raises(ValueError, match="adaptive, strict or blocking"),
        torch.neuron.eager_mode(
            "fast"  # type: ignore[arg-type]
        ),
    ):
        pass


@pytest.mark.usefixtures("adaptive")
def test_the_report_names_operations_and_lines() -> None:
    x = torch.ones(11, device=DEVICE)
    for _ in range(6):
        ((x + 3) * 4).sum().item()
    report = torch.neuron.windows_report()
    assert "aten.sum" in report
    assert "test_windows.py" in report
    assert "a value is read" in report


LOOP = """
import torch
from torchneuron import _C
_C.set_window_tuning(sightings=2, min_steps=2, wait=True, trials=0)
x = torch.ones(13, device="neuron")
for _ in range(8):
    value = ((x + 5) * 6 - x).sum().item()
print(value, {name: torch.neuron.metrics()[name] for name in
    ("windows_compiled", "windows_from_disk", "windows_run")})
"""


@pytest.fixture
def run_adaptive(run_python: RunPython, tmp_path: Any) -> RunPython:
    """Run a script in adaptive mode with a program cache of the test's own."""
    return partial(run_python, TORCHNEURON_EAGER="adaptive", TORCHNEURON_CACHE_DIR=str(tmp_path))


def test_another_process_finds_the_windows(run_adaptive: RunPython) -> None:
    first = run_adaptive(LOOP).stdout
    second = run_adaptive(LOOP).stdout
    assert first.startswith("455.0")
    assert second.startswith("455.0")
    assert "'windows_compiled': 1" in first
    assert "'windows_compiled': 0, 'windows_from_disk': 1" in second


KILLED = (
    """
import os, signal, subprocess, torch
from torchneuron.adaptive import service
start = service.Worker._start
def start_and_kill(self):
    start(self)
    self._process.kill()
service.Worker._start = start_and_kill
"""
    + LOOP
    + """
print([window["dropped"] for window in torch.neuron.windows()])
"""
)


def test_a_killed_worker_costs_the_window_only(run_adaptive: RunPython) -> None:
    output = run_adaptive(KILLED).stdout
    assert output.startswith("455.0")
    assert f"ended with {-signal.SIGKILL}" in output


def test_a_storage_is_read_while_a_window_waits_for_python(run_adaptive: RunPython) -> None:
    """PyTorch copies storages with the GIL held."""
    script = LOOP.replace(".sum().item()", ".untyped_storage().cpu().nbytes()")
    assert run_adaptive(script, timeout=60).stdout.startswith("52 ")


IDLE_DEATHS = (
    """
import threading, torch
from torchneuron.adaptive import service
first = threading.Thread(target=lambda: torch.ones(3, device="neuron").add(1).sum().item())
first.start()
first.join()
"""
    + LOOP
    + """
process = service.start()._worker._process
process.kill()
process.wait()
x = torch.ones(14, device="neuron")
for _ in range(8):
    value = ((x + 5) * 6 - x).sum().item()
print([(window["state"], window["dropped"]) for window in torch.neuron.windows()])
"""
)


def test_a_worker_that_dies_between_windows_costs_none(run_adaptive: RunPython) -> None:
    output = run_adaptive(IDLE_DEATHS).stdout
    assert output.splitlines()[-1] == "[('ready', ''), ('ready', '')]"


NO_WORKER = (
    """
import subprocess
def refuse(*arguments, **options):
    raise OSError("Resource temporarily unavailable")
subprocess.Popen = refuse
"""
    + LOOP
    + """
print([window["dropped"] for window in torch.neuron.windows()])
"""
)


def test_without_a_worker_operations_run_one_by_one(run_adaptive: RunPython) -> None:
    output = run_adaptive(NO_WORKER).stdout
    assert output.startswith("455.0")
    assert "does not start: Resource temporarily unavailable" in output


@pytest.mark.parametrize("wait", [0.0, 0.4])
def test_the_process_may_end_at_any_moment(run_adaptive: RunPython, wait: float) -> None:
    script = LOOP.replace("wait=True", "wait=False") + f"import time\ntime.sleep({wait})\n"
    done = run_adaptive(script)
    assert done.stderr == ""


def test_no_worker_outlives_the_process(run_adaptive: RunPython) -> None:
    script = LOOP + (
        "from torchneuron.adaptive import service\nprint(service.start()._worker._process.pid)\n"
    )
    output = run_adaptive(script).stdout
    pid = int(output.splitlines()[-1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
