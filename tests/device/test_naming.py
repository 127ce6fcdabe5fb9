"""The device's name, and the attributes and methods that PyTorch derives from it."""

import copy
import pickle
import sys

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence


def test_the_name_is_known_everywhere() -> None:
    assert torch._C._get_privateuse1_backend_name() == "neuron"
    assert torch.device("neuron").type == "neuron"
    assert torch.device("neuron", 1) == torch.device("neuron:1")
    assert torch.get_device_module("neuron") is torch.neuron is sys.modules["torch.neuron"]
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    assert torch._utils._get_available_device_type() == "neuron"


def test_device_objects_copy_and_pickle() -> None:
    device = torch.device("neuron:1")
    assert copy.deepcopy(device) == device
    assert pickle.loads(pickle.dumps(device)) == device


def test_registering_again_changes_nothing() -> None:
    from torchneuron import _autoload, _startup

    module = torch.neuron
    _autoload()
    _startup.register()
    assert torch.neuron is module


def test_tensor_methods() -> None:
    host = torch.arange(3.0)
    there = host.neuron()
    assert there.is_neuron
    assert not host.is_neuron
    assert there.device == torch.device("neuron:0")
    assert host.neuron(1).device == torch.device("neuron:1")
    assert host.neuron(torch.device("neuron:1")).device.index == 1
    assert there.neuron() is there
    assert there.cpu().tolist() == [0.0, 1.0, 2.0]
    assert there.get_device() == 0
    assert not any((there.is_cuda, there.is_cpu, there.is_meta))


def test_module_methods() -> None:
    module = torch.nn.Linear(2, 2).neuron()
    assert all(p.device.type == "neuron" for p in module.parameters())
    assert isinstance(module.weight, torch.nn.Parameter)
    module.to("cpu")
    assert module.weight.device.type == "cpu"
    module.to("neuron:1")
    assert module.weight.device == torch.device("neuron:1")


def test_storage_methods() -> None:
    storage = torch.arange(4, dtype=torch.uint8).untyped_storage()
    there = storage.neuron()
    assert there.is_neuron
    assert not storage.is_neuron
    assert there.device == torch.device("neuron:0")
    assert there.neuron() is there
    assert bytes(there.cpu()) == bytes(range(4))


def test_packed_sequence_methods() -> None:
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    there = packed.neuron()
    assert there.is_neuron
    assert not packed.is_neuron
    assert there.cpu().data.equal(packed.data)


@pytest.mark.parametrize("device", ["neuron", "neuron:1", torch.device("neuron", 1)])
def test_default_device(device: str | torch.device) -> None:
    with torch.device(device):
        made = torch.ones(2)
    assert made.device == torch.device("neuron", torch.device(device).index or 0)
    torch.set_default_device(device)
    try:
        assert torch.zeros(1).device.type == "neuron"
    finally:
        torch.set_default_device(None)
    assert torch.zeros(1).device.type == "cpu"
