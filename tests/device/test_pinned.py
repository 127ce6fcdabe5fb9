"""Pinned host memory, and copies that do not block."""

import pytest
import torch


def test_pin_memory() -> None:
    host = torch.arange(100.0)
    assert not host.is_pinned()
    pinned = host.pin_memory()
    assert pinned.is_pinned()
    assert pinned.device.type == "cpu"
    assert pinned.equal(host)
    assert pinned.data_ptr() != host.data_ptr()
    assert pinned.pin_memory() is pinned
    assert pinned[10:].is_pinned()
    assert pinned.untyped_storage().is_pinned()
    assert not (pinned + 1).is_pinned()


def test_factories_pin() -> None:
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert torch.zeros(3, pin_memory=True).tolist() == [0, 0, 0]
    assert torch.randn(2, 2, pin_memory=True).is_pinned()
    assert torch.empty(0, pin_memory=True).numel() == 0
    assert torch.arange(4).untyped_storage().pin_memory().is_pinned()


def test_only_host_memory_can_be_pinned() -> None:
    there = torch.zeros(2, device="neuron")
    assert not there.is_pinned()
    with pytest.raises(RuntimeError, match="pin"):
        there.pin_memory()
    with pytest.raises(RuntimeError, match="pin"):
        torch.empty(2, device="neuron", pin_memory=True)


def test_non_blocking_copies_to_the_device_take_the_bytes_of_the_call() -> None:
    pinned = torch.ones(1 << 16).pin_memory()
    there = pinned.to("neuron", non_blocking=True)
    pinned.fill_(7)  # the copy has its bytes already
    assert there.sum().item() == 1 << 16
    there.copy_(pinned, non_blocking=True)
    assert there[0].item() == 7


def test_non_blocking_copies_to_the_host() -> None:
    x = torch.arange(1000, device="neuron")
    pinned = torch.empty(1000, dtype=torch.int64, pin_memory=True)
    pinned.copy_(x + 1, non_blocking=True)
    torch.neuron.synchronize()
    assert pinned.tolist() == list(range(1, 1001))
    moved = x.to("cpu", non_blocking=True)
    torch.neuron.synchronize()
    assert moved.equal(torch.arange(1000))


def test_blocks_are_apart_and_given_back() -> None:
    blocks = [torch.full((1000,), i, pin_memory=True) for i in range(4)]
    assert len({block.data_ptr() for block in blocks}) == 4
    view = blocks[2][:10]
    del blocks
    assert view.is_pinned()
    assert view.tolist() == [2] * 10


def test_empty_host_cache() -> None:
    torch.accelerator.empty_host_cache()
