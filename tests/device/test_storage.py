"""Storages: sizes, aliasing, resizing, and where data_ptr points."""

import pytest
import torch


def pointer(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_sizes_and_addresses() -> None:
    x = torch.zeros(3, 4, device="neuron")
    storage = x.untyped_storage()
    assert storage.nbytes() == storage.size() == len(storage) == 48
    assert storage.device == torch.device("neuron:0")
    assert x.data_ptr() == storage.data_ptr() != 0
    assert x[1].data_ptr() == x.data_ptr() + 16
    assert x[1].storage_offset() == 4
    assert torch.zeros(3, device="neuron").data_ptr() != x.data_ptr()
    assert torch.empty(0, device="neuron").data_ptr() == 0
    assert storage.resizable()
    assert not storage.is_pinned()


def test_the_address_is_stable() -> None:
    x = torch.zeros(4, device="neuron")
    before = x.data_ptr()
    x.add_(1)
    x[1:].mul_(2)
    x.copy_(torch.ones(4))
    x.zero_()
    assert x.data_ptr() == before


def test_addresses_are_not_used_again() -> None:
    first = torch.zeros(4, device="neuron").data_ptr()
    assert torch.zeros(4, device="neuron").data_ptr() != first


def test_views_alias() -> None:
    x = torch.zeros(2, 3, device="neuron")
    y, z = x.view(6), x.t()
    y[4] = 5
    assert x.tolist() == [[0, 0, 0], [0, 5, 0]]
    z.add_(1)
    assert y.tolist() == [1, 1, 1, 1, 6, 1]
    assert pointer(y) == pointer(z) == pointer(x)
    assert y._is_view()
    assert y._base is x
    assert torch._C._is_alias_of(x, z)


def test_set_shares_the_storage() -> None:
    x = torch.arange(6.0, device="neuron")
    y = torch.empty(0, device="neuron")
    y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    assert y.tolist() == [[2, 3], [4, 5]]
    y.fill_(9)
    assert x.tolist() == [0, 1, 9, 9, 9, 9]
    z = torch.tensor([], device="neuron").set_(x)
    assert z.is_set_to(x)
    assert z.data_ptr() == x.data_ptr()
    z.set_()
    assert z.numel() == 0
    assert x.numel() == 6


def test_data_assignment_keeps_the_object() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3, device="neuron"))
    other = torch.ones(2, device="neuron")
    parameter.data = other
    assert parameter.data_ptr() == other.data_ptr()
    assert parameter.shape == (2,)
    assert isinstance(parameter, torch.nn.Parameter)


def test_storage_resize() -> None:
    x = torch.arange(4.0, device="neuron")
    storage = x.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(16)
    x.copy_(torch.arange(4.0))
    assert x.tolist() == [0, 1, 2, 3]
    storage.resize_(32)
    assert x.tolist() == [0, 1, 2, 3]
    assert torch.empty(0, device="neuron").set_(storage, 0, (8,)).shape == (8,)
    storage.resize_(8)
    assert x[:2].tolist() == [0, 1]


def test_resizing_to_nothing_frees_memory() -> None:
    """As FSDP does with parameters that are sharded."""
    before = torch.neuron.memory_allocated()
    x = torch.ones(1 << 16, device="neuron")
    x.untyped_storage().resize_(0)
    assert torch.neuron.memory_allocated() == before
    x.untyped_storage().resize_(x.numel() * 4)
    x.fill_(2)
    assert x.sum().item() == 2 << 16


def test_reading_beyond_a_shrunken_storage_raises() -> None:
    x = torch.arange(4.0, device="neuron")
    x.untyped_storage().resize_(4)
    for read in (lambda: x + 1, lambda: x.cpu(), lambda: x.fill_(1), lambda: x.clone()):
        with pytest.raises(RuntimeError):
            read()


def test_tensor_resize() -> None:
    x = torch.arange(4.0, device="neuron")
    x.resize_(2, 3)
    assert x.shape == (2, 3)
    assert x.flatten()[:4].tolist() == [0, 1, 2, 3]
    x.resize_(2)
    assert x.tolist() == [0, 1]
    assert x.untyped_storage().nbytes() == 24
    assert x.resize_as_(torch.empty(3, 1, device="neuron")).shape == (3, 1)
    y = torch.empty(2, 2, device="neuron").resize_(1, 3, 2, 2, memory_format=torch.channels_last)
    assert y.stride() == (12, 1, 6, 3)


def test_storage_copies() -> None:
    host = torch.arange(8, dtype=torch.uint8).untyped_storage()
    there = torch.UntypedStorage(8, device="neuron")
    there.copy_(host)
    assert bytes(there.cpu()) == bytes(range(8))
    other = torch.UntypedStorage(8, device="neuron:1").copy_(there)
    assert bytes(other.cpu()) == bytes(range(8))
    assert there.clone().data_ptr() != there.data_ptr()
    assert bytes(there.clone().cpu()) == bytes(range(8))
    back = torch.UntypedStorage(8).copy_(other)
    assert bytes(back) == bytes(range(8))
    assert there.tolist() == list(range(8))
    assert there[3] == 3
    there.fill_(7)
    assert set(there.tolist()) == {7}


def test_storage_to_other_devices() -> None:
    storage = torch.arange(3.0, device="neuron").untyped_storage()
    assert storage.to(device="cpu").device.type == "cpu"
    assert storage.to(device="neuron:1").device.index == 1
    assert storage.neuron(0) is storage


def test_typed_views_of_one_storage() -> None:
    x = torch.zeros(4, dtype=torch.int32, device="neuron")
    as_floats = x.view(torch.float32)
    as_floats[1] = 1.0
    assert x.tolist() == [0, 0x3F800000, 0, 0]
    as_bytes = torch.empty(0, dtype=torch.uint8, device="neuron").set_(x.untyped_storage())
    assert as_bytes.shape == (16,)
    as_bytes[0] = 3
    assert x[0].item() == 3


def test_uninitialized_memory_reads_as_zeros() -> None:
    assert torch.empty(5, device="neuron").tolist() == [0] * 5
    assert torch.empty_strided((2, 2), (1, 2), device="neuron").sum().item() == 0


def test_host_code_cannot_follow_the_address() -> None:
    x = torch.zeros(2, device="neuron")
    assert x.data_ptr() >> 47 not in (0, (1 << 17) - 1)  # no address of x86-64's user space
    with pytest.raises(TypeError, match="neuron"):
        x.numpy()


def test_memory_that_another_owner_wraps() -> None:
    """PyTorch makes storages of its own over the same address: here through DLPack."""
    x = torch.arange(4.0, device="neuron")
    alias = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert alias.device == x.device
    assert alias.data_ptr() == x.data_ptr()
    alias.add_(1)
    assert x.tolist() == [1, 2, 3, 4]


def test_tensors_without_device_memory() -> None:
    x = torch.tensor(5, device="neuron")
    assert x.dim() == 0
    assert x.item() == int(x) == 5
    assert bool(torch.tensor(True, device="neuron"))
    assert list(range(6))[x] == 5
    assert torch.tensor([], device="neuron").tolist() == []
    assert torch.empty(2, 0, device="neuron").tolist() == [[], []]
