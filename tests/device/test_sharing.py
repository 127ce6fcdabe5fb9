"""Tensors sent to other processes."""

from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch

from tests.conftest import RunPython


def sent(value: Any) -> Any:
    """What another process receives, received by this one."""
    return ForkingPickler.loads(ForkingPickler.dumps(value))


def test_a_copy_arrives_on_the_same_device() -> None:
    x = torch.arange(6.0, device="neuron:1").reshape(2, 3)
    received = sent({"x": x, "view": x[1]})
    assert received["x"].device == x.device
    assert received["x"].tolist() == x.tolist()
    assert received["view"].tolist() == [3, 4, 5]
    received["x"].zero_()
    assert x.sum().item() == 15  # the sender's tensor is as it was
    assert x.device.type == "neuron"


def test_parameters_and_modules() -> None:
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"), requires_grad=False)
    received = sent(parameter)
    assert isinstance(received, torch.nn.Parameter)
    assert not received.requires_grad
    model = torch.nn.Linear(2, 2).to("neuron")
    copy = sent(model)
    assert copy.weight.requires_grad
    assert copy.weight.cpu().equal(model.weight.cpu())


def test_storages() -> None:
    storage = torch.arange(4, dtype=torch.uint8, device="neuron").untyped_storage()
    received = sent(storage)
    assert received.device.type == "neuron"
    assert received.tolist() == [0, 1, 2, 3]


def test_results_of_operations_are_refused_as_elsewhere() -> None:
    x = torch.ones(2, device="neuron", requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf"):
        sent(x)
    assert sent(x.detach()).tolist() == [2, 2]


def test_host_tensors_are_shared_as_before() -> None:
    x = torch.zeros(3)
    received = sent(x)
    received.fill_(1)
    assert x.tolist() == [1, 1, 1]


SPAWNED = """
import torch
import torch.multiprocessing as mp

def child(rank, x, queue):
    assert x.device == torch.device("neuron:1"), x.device
    queue.put(x * 2 + rank)
    queue.get()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue = context.Queue()
    x = torch.arange(3.0, device="neuron:1") + 1
    process = context.Process(target=child, args=(0, x, queue))
    process.start()
    print(queue.get().tolist(), x.tolist())
    queue.put("done")
    process.join()
    print(process.exitcode)
"""


def test_spawned_processes_exchange_tensors(run_python: RunPython, tmp_path: Any) -> None:
    path = tmp_path / "spawning.py"
    path.write_text(SPAWNED)
    done = run_python(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')")
    assert done.stdout.splitlines() == ["[2.0, 4.0, 6.0] [1.0, 2.0, 3.0]", "0"]
    assert done.stderr == ""
