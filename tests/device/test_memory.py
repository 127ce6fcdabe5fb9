"""Memory figures, the limit, and what happens at it."""

import gc
from collections.abc import Iterator

import pytest
import torch

MIB = 1 << 20


@pytest.fixture
def limit() -> Iterator[int]:
    """The devices hold 64 MiB more than what is allocated on neuron:0 now."""
    total = torch.neuron.mem_get_info()[1]
    room = torch.neuron.memory_allocated() + 64 * MIB
    torch.neuron.set_per_process_memory_fraction(room / total)
    yield room
    torch.neuron.set_per_process_memory_fraction(1.0)
    assert torch.neuron.mem_get_info()[1] == total


def block(mebibytes: int) -> torch.Tensor:
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="neuron")


def test_figures_follow_tensors() -> None:
    before = torch.neuron.memory_allocated()
    x = torch.ones(1000, device="neuron")
    view = x[10:]
    assert torch.neuron.memory_allocated() - before == x.nbytes
    y = x + 1
    assert torch.neuron.memory_allocated() - before == 2 * x.nbytes
    x.add_(1)
    assert torch.neuron.memory_allocated() - before == 2 * x.nbytes
    size = x.nbytes
    del x, y
    assert torch.neuron.memory_allocated() - before == size  # the view keeps its storage
    del view
    assert torch.neuron.memory_allocated() == before


def test_stats_hold_all_keys() -> None:
    torch.neuron.reset_accumulated_memory_stats()
    kept = block(1)
    stats = torch.neuron.memory_stats()
    for group in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        for what in ("current", "peak", "allocated", "freed"):
            assert isinstance(stats[f"{group}.all.{what}"], int)
        assert stats[f"{group}.all.allocated"] == kept.nbytes
    assert stats["allocation.all.allocated"] == 1
    assert stats["active.all.current"] >= 1
    assert stats["num_ooms"] == 0
    assert stats["num_alloc_retries"] == 0
    assert stats == torch.accelerator.memory_stats()


def test_a_full_device_says_who_wanted_what(limit: int) -> None:
    kept = block(40)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        block(40)
    text = str(caught.value)
    assert "Tried to allocate 40.00 MiB" in text
    assert "aten::empty" in text
    assert "24.00 MiB is free" in text
    assert "Device 0" in text
    assert "TORCHNEURON_MEMORY_LIMIT" in text
    assert torch.neuron.memory_allocated() <= limit
    assert torch.neuron.memory_stats()["num_ooms"] >= 1
    assert isinstance(caught.value, torch.neuron.OutOfMemoryError)
    del kept
    assert block(40).nbytes == 40 * MIB  # freeing made room


def test_the_message_names_the_operation(limit: int) -> None:
    x = torch.zeros(8 * MIB, device="neuron")
    with pytest.raises(torch.OutOfMemoryError, match=r"aten::add\.Tensor"):
        y = [x + i for i in range(3)]
    y = None
    assert y is None
    assert (x + 1)[0].item() == 1


def test_other_devices_are_not_affected(limit: int) -> None:
    kept = block(60)
    with pytest.raises(torch.OutOfMemoryError, match="Device 0"):
        block(60)
    there = torch.empty(60 * MIB, dtype=torch.uint8, device="neuron:1")
    assert there.device.index == 1
    assert kept.nbytes == there.nbytes


def test_out_of_memory_in_the_middle_leaves_the_operands_as_they_were(limit: int) -> None:
    x = torch.arange(8 * MIB, device="neuron", dtype=torch.int32)
    x.add_(1)
    with pytest.raises(torch.OutOfMemoryError):
        torch.cat([x, x])
    assert x[-1].item() == 8 * MIB
    x.add_(1)
    assert x[0].item() == 2


def test_an_impossible_size() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="GiB"):
        torch.empty(1 << 40, dtype=torch.uint8, device="neuron")
    with pytest.raises(RuntimeError, match="overflow"):
        torch.empty(1 << 62, 8, device="neuron")


def test_moving_in_counts_against_the_limit(limit: int) -> None:
    host = torch.zeros(100 * MIB, dtype=torch.uint8)
    with pytest.raises(torch.OutOfMemoryError):
        host.to("neuron")
    assert host[:MIB].to("neuron").nbytes == MIB


def test_fraction_is_checked() -> None:
    with pytest.raises(TypeError, match="float"):
        torch.neuron.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match="Allowed range"):
        torch.neuron.set_per_process_memory_fraction(1.5)


def test_summary() -> None:
    text = torch.neuron.memory_summary()
    assert text.startswith("neuron:0 memory\n")
    assert "capacity" in text
    assert "peak" in text
    assert "out of memory" in text
    assert "out of memory" not in torch.neuron.memory_summary(1, abbreviated=True)


def test_empty_tensors_take_nothing() -> None:
    before = torch.neuron.memory_allocated()
    empty = [torch.empty(0, 5, device="neuron") for _ in range(10)]
    assert torch.neuron.memory_allocated() == before
    assert len({x.data_ptr() for x in empty}) == 1


@pytest.mark.filterwarnings("ignore")
def test_new_programs_and_fallbacks_keep_nothing_alive() -> None:
    """What the first call of a signature leaves behind must not hold the caller's variables."""

    def work(size: int) -> None:
        x = torch.eye(size, device="neuron")
        torch.linalg.eigvals(x)  # runs on the CPU
        x.cosh().sum()

    work(3)
    gc.collect()
    gc.disable()
    try:
        before = torch.neuron.memory_allocated()
        work(4)
        assert torch.neuron.memory_allocated() == before
    finally:
        gc.enable()
