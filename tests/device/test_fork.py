"""Children of processes that have used the device."""

import os
import signal

import pytest
import torch

from tests.conftest import RunPython


def in_child(work) -> str:  # type: ignore[no-untyped-def]
    """What ``work()`` gives or raises in a forked child, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)  # a child that hangs is killed
        try:
            text = repr(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    status = os.waitpid(pid, 0)[1]
    return text if status == 0 else f"the child ended with status {status}"


@pytest.fixture(scope="module")
def used() -> torch.Tensor:
    """A tensor of this process, with some work done."""
    x = torch.arange(4.0, device="neuron") + 1
    assert x.sum().item() == 10
    return x


@pytest.mark.parametrize(
    "work",
    [
        lambda x: torch.zeros(2, device="neuron"),
        lambda x: torch.empty(2, device="neuron"),
        lambda x: torch.ones(2).to("neuron"),
        lambda x: x + 1,
        lambda x: x.add_(1),
        lambda x: x.cpu(),
        lambda x: x.tolist(),
        lambda x: x.sum().item(),
        lambda x: torch.neuron.init(),
        lambda x: torch.rand(2, device="neuron"),
    ],
)
def test_a_child_is_told_to_use_spawn(used: torch.Tensor, work) -> None:  # type: ignore[no-untyped-def]
    text = in_child(lambda: work(used))
    assert text.startswith("RuntimeError: Cannot "), text
    assert "'spawn'" in text


def test_a_child_may_ask(used: torch.Tensor) -> None:
    assert in_child(torch.neuron._is_in_bad_fork) == "True"
    assert in_child(torch.neuron.is_initialized) == "False"
    assert in_child(lambda: torch.neuron.device_count() > 0) == "True"
    assert in_child(torch.neuron.is_available) == "True"
    assert in_child(lambda: torch.manual_seed(3).initial_seed()) == "3"
    assert in_child(lambda: torch.ones(2).sum().item()) == "2.0"
    assert in_child(torch.neuron.synchronize) == "None"
    assert in_child(lambda: used.shape) == "torch.Size([4])"


def test_inherited_tensors_die_quietly(used: torch.Tensor) -> None:
    kept = [torch.ones(100, device="neuron") for _ in range(10)]

    def drop() -> int:
        kept.clear()
        return len(kept)

    assert in_child(drop) == "0"
    assert len(kept) == 10
    assert kept[0].sum().item() == 100


def test_the_parent_keeps_working(used: torch.Tensor) -> None:
    x = used * 2
    for _ in range(3):
        assert in_child(os.getppid) == repr(os.getpid())
        x = x + used
    assert x.tolist() == [5, 10, 15, 20]


def test_forking_before_first_use_is_fine(run_python: RunPython) -> None:
    script = """
import os, torch
torch.manual_seed(1)
assert torch.neuron.is_available() and torch.neuron.device_count()
pid = os.fork()
x = torch.ones(3, device="neuron") * (2 if pid else 3)
assert x.tolist() == ([2.0] * 3 if pid else [3.0] * 3)
if pid == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print("both")
"""
    done = run_python(script)
    assert done.stdout == "both\n"
    assert done.stderr == ""


CHURN = """
import os, signal, threading, torch
kept = [torch.empty(4, device="neuron") for _ in range(2000)]
ended = threading.Event()

def churn():
    while not ended.is_set():
        for _ in range(100):
            torch.empty(4, device="neuron")

threads = [threading.Thread(target=churn) for _ in range(2)]
for thread in threads:
    thread.start()
children = []
for _ in range(200):
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that hangs is killed
        kept.clear()
        os._exit(0)
    children.append(child)
statuses = {os.waitpid(child, 0)[1] for child in children}
ended.set()
for thread in threads:
    thread.join()
print(statuses)
"""


def test_a_child_may_free_what_another_thread_was_about_to(run_python: RunPython) -> None:
    assert run_python(CHURN).stdout == "{0}\n"
