"""torch.save and torch.load, pickle, deepcopy, safetensors."""

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch


def saved(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.fixture
def tensor() -> torch.Tensor:
    """0 to 11 on neuron:0."""
    return torch.arange(12.0).reshape(3, 4).to("neuron")


def same(value: torch.Tensor, expected: torch.Tensor, device: str) -> bool:
    return str(value.device) == device and value.cpu().equal(expected.cpu())


@pytest.mark.parametrize("weights_only", [True, False])
def test_round_trip_keeps_the_device(tensor: torch.Tensor, weights_only: bool) -> None:
    loaded = torch.load(saved(tensor), weights_only=weights_only)
    assert same(loaded, tensor, "neuron:0")
    there = tensor.to("neuron:1")
    assert same(torch.load(saved(there), weights_only=weights_only), tensor, "neuron:1")


@pytest.mark.parametrize(
    ("location", "device"),
    [
        ("cpu", "cpu"),
        ("neuron", "neuron:0"),
        ("neuron:1", "neuron:1"),
        (torch.device("neuron", 1), "neuron:1"),
        ({"neuron:0": "neuron:1"}, "neuron:1"),
        ({"neuron:0": "cpu"}, "cpu"),
        (lambda storage, tag: storage.neuron(1), "neuron:1"),
        (lambda storage, tag: None, "neuron:0"),
    ],
)
def test_map_location(tensor: torch.Tensor, location: Any, device: str) -> None:
    assert same(torch.load(saved(tensor), map_location=location), tensor, device)


@pytest.mark.parametrize("location", ["neuron", "neuron:1", torch.device("neuron:1")])
def test_host_tensors_load_onto_the_device(location: Any) -> None:
    host = torch.arange(5)
    loaded = torch.load(saved(host), map_location=location)
    assert loaded.device == torch.device("neuron", torch.device(location).index or 0)
    assert loaded.tolist() == [0, 1, 2, 3, 4]


def test_bare_name_means_the_current_device() -> None:
    file = saved(torch.arange(3))
    with torch.neuron.device(1):
        assert torch.load(file, map_location="neuron").device.index == 1


def test_meta_location(tensor: torch.Tensor) -> None:
    assert torch.load(saved(tensor), map_location="meta").device.type == "meta"


def test_default_device_is_not_changed_by_loading(tensor: torch.Tensor) -> None:
    with torch.device("neuron:1"):
        assert torch.load(saved(torch.ones(2))).device.index == 1
        assert torch.load(saved(torch.ones(2)), map_location="cpu").device.type == "cpu"


def test_a_device_that_does_not_exist_is_named(tensor: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match=r"(?i)NEURON device 99 but torch\.neuron\.device_count"):
        torch.load(saved(torch.ones(2)), map_location="neuron:99")


def test_views_share_their_storage_after_loading(tensor: torch.Tensor) -> None:
    whole, part = torch.load(saved((tensor, tensor[1])))
    assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    part.fill_(9)
    assert whole[1].tolist() == [9] * 4
    transposed = torch.load(saved(tensor.t()))
    assert transposed.stride() == (1, 4)
    assert transposed.cpu().equal(tensor.t().cpu())


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.uint8,
        torch.int64,
        torch.bool,
        torch.complex64,
        torch.float8_e4m3fn,
        torch.uint16,
    ],
)
def test_dtypes(dtype: torch.dtype) -> None:
    host = torch.tensor([0, 1, 3, 1]).to(dtype)
    loaded = torch.load(saved(host.to("neuron")))
    assert loaded.dtype == dtype
    assert loaded.device.type == "neuron"
    assert loaded.cpu().view(torch.uint8).equal(host.view(torch.uint8))


def test_memory_mapped_files(tensor: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"host": tensor.cpu(), "there": tensor}, path)
    loaded = torch.load(path, map_location="neuron:1", mmap=True)
    assert same(loaded["host"], tensor, "neuron:1")
    assert same(loaded["there"], tensor, "neuron:1")
    kept = torch.load(path, mmap=True)
    assert same(kept["host"], tensor, "cpu")
    assert same(kept["there"], tensor, "neuron:0")


def test_old_file_format(tensor: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save(tensor, path, _use_new_zipfile_serialization=False)
    assert same(torch.load(path), tensor, "neuron:0")
    assert same(torch.load(path, map_location="cpu"), tensor, "cpu")


def test_module_and_optimizer_states(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).to("neuron")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 3, device="neuron")).sum().backward()
    optimizer.step()
    path = tmp_path / "state.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    loaded = torch.load(path)
    assert loaded["model"]["weight"].device.type == "neuron"
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(loaded["model"])  # a host module takes device tensors
    assert other.weight.device.type == "cpu"
    assert other.weight.equal(model.weight.cpu())
    again = torch.optim.AdamW(other.to("neuron").parameters(), lr=0.1)
    again.load_state_dict(loaded["optimizer"])
    moments = again.state[other.weight]["exp_avg"]
    assert same(moments, optimizer.state[model.weight]["exp_avg"], "neuron:0")


def test_whole_modules(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2).to("neuron:1")
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert same(loaded.weight.detach(), model.weight.detach(), "neuron:1")
    assert loaded.weight.requires_grad


def test_pickle(tensor: torch.Tensor) -> None:
    copied = pickle.loads(pickle.dumps({"x": tensor, "y": [tensor]}))
    assert same(copied["x"], tensor, "neuron:0")
    parameter = torch.nn.Parameter(tensor.to("neuron:1"))
    copied = pickle.loads(pickle.dumps(parameter))
    assert isinstance(copied, torch.nn.Parameter)
    assert same(copied.detach(), tensor, "neuron:1")


def test_deepcopy(tensor: torch.Tensor) -> None:
    tensor.requires_grad_(True)
    tensor.grad = torch.ones_like(tensor)
    copied = copy.deepcopy(tensor)
    assert same(copied.detach(), tensor.detach(), "neuron:0")
    assert copied.requires_grad
    assert copied.grad is not None
    assert copied.grad.data_ptr() != tensor.grad.data_ptr()
    assert copied.data_ptr() != tensor.data_ptr()
    with torch.no_grad():
        tensor.zero_()
    assert copied.sum().item() == 66
    whole, part = copy.deepcopy((tensor.detach(), tensor.detach()[0]))
    part.add_(5)
    assert whole[0, 0].item() == 5
    model = copy.deepcopy(torch.nn.Linear(2, 2).to("neuron:1"))
    assert model.weight.device == torch.device("neuron:1")
    storage = copy.deepcopy(tensor.untyped_storage())
    assert storage.device.type == "neuron"
    assert storage.nbytes() == 48


def test_shallow_copies_share_storage(tensor: torch.Tensor) -> None:
    copied = copy.copy(tensor)
    copied.fill_(1)
    assert tensor.sum().item() == 12


class Named(torch.Tensor):
    """A subclass with nothing of its own."""


def test_subclasses_keep_their_type(tensor: torch.Tensor) -> None:
    named = tensor.as_subclass(Named)
    loaded = torch.load(saved(named), weights_only=False)
    assert type(loaded) is Named
    assert same(loaded.as_subclass(torch.Tensor), tensor, "neuron:0")


def test_safetensors(tensor: torch.Tensor, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"x": tensor, "h": tensor.half()}, path)
    loaded = safetensors.load_file(path)
    assert same(loaded["x"].to("neuron"), tensor, "neuron:0")
    # Its list of device names has no "neuron"; a number is an index of the current accelerator.
    loaded = safetensors.load_file(path, device=1)
    assert same(loaded["x"], tensor, "neuron:1")
    assert loaded["h"].dtype == torch.float16
    model, other = (torch.nn.Linear(4, 3).to("neuron") for _ in range(2))
    safetensors.save_model(model, path)
    safetensors.load_model(other, path)
    assert same(other.weight.detach(), model.weight.detach(), "neuron:0")


def test_numpy_and_buffers_need_the_host(tensor: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="neuron"):
        tensor.numpy()
    assert tensor.numpy(force=True).sum() == 66
    assert tensor.tolist()[2] == [8, 9, 10, 11]
