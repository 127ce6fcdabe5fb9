"""All of torch.accelerator."""

import pytest
import torch

ACCELERATOR = torch.accelerator


def test_every_function_is_covered_here() -> None:
    """A new function of torch.accelerator should be looked at."""
    covered = {
        "Graph",
        "current_accelerator",
        "current_device_idx",
        "current_device_index",
        "current_stream",
        "device_count",
        "device_index",
        "empty_cache",
        "empty_host_cache",
        "get_device_capability",
        "get_memory_info",
        "is_available",
        "max_memory_allocated",
        "max_memory_reserved",
        "memory_allocated",
        "memory_reserved",
        "memory_stats",
        "reset_accumulated_memory_stats",
        "reset_peak_memory_stats",
        "set_device_idx",
        "set_device_index",
        "set_stream",
        "synchronize",
    }
    assert set(ACCELERATOR.__all__) - covered == set()


def test_devices() -> None:
    assert ACCELERATOR.current_accelerator() == torch.device("neuron")
    assert ACCELERATOR.current_accelerator(check_available=True) == torch.device("neuron")
    assert ACCELERATOR.is_available()
    assert ACCELERATOR.device_count() == torch.neuron.device_count() >= 2
    assert ACCELERATOR.current_device_index() == 0
    ACCELERATOR.set_device_index(1)
    assert ACCELERATOR.current_device_index() == torch.neuron.current_device() == 1
    ACCELERATOR.set_device_index("neuron:0")
    with ACCELERATOR.device_index(1):
        assert torch.zeros(1, device="neuron").device.index == 1
    with ACCELERATOR.device_index(None):
        assert ACCELERATOR.current_device_index() == 0


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_old_names() -> None:
    ACCELERATOR.set_device_idx(1)
    assert ACCELERATOR.current_device_idx() == 1


def test_capability() -> None:
    dtypes = ACCELERATOR.get_device_capability()["supported_dtypes"]
    expected = {torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool}
    assert expected <= set(dtypes)
    assert torch.complex64 in dtypes
    assert torch.qint8 not in dtypes
    assert ACCELERATOR.get_device_capability("neuron:1") == ACCELERATOR.get_device_capability()


def test_streams() -> None:
    default = ACCELERATOR.current_stream()
    assert default.device == torch.device("neuron:0")
    assert ACCELERATOR.current_stream("neuron:1").device.index == 1
    side = torch.Stream("neuron")
    ACCELERATOR.set_stream(side)
    try:
        assert ACCELERATOR.current_stream() == side
        x = torch.arange(3, device="neuron") + 1
    finally:
        ACCELERATOR.set_stream(default)
    side.synchronize()
    assert x.tolist() == [1, 2, 3]


def test_synchronize() -> None:
    x = torch.ones(8, device="neuron:1") * 2
    ACCELERATOR.synchronize()
    ACCELERATOR.synchronize("neuron:1")
    assert torch.neuron.current_stream(1).query()
    assert x.sum().item() == 16


def test_memory_functions() -> None:
    ACCELERATOR.reset_peak_memory_stats()
    before = ACCELERATOR.memory_allocated()
    x = torch.empty(1 << 20, device="neuron", dtype=torch.uint8)
    assert ACCELERATOR.memory_allocated() - before == x.nbytes
    assert ACCELERATOR.memory_reserved() >= ACCELERATOR.memory_allocated()
    del x
    assert ACCELERATOR.memory_allocated() == before
    assert ACCELERATOR.max_memory_allocated() >= before + (1 << 20)
    assert ACCELERATOR.max_memory_reserved() >= before + (1 << 20)
    ACCELERATOR.reset_peak_memory_stats()
    assert ACCELERATOR.max_memory_allocated() == before
    ACCELERATOR.reset_accumulated_memory_stats()
    stats = ACCELERATOR.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == 0
    assert stats["allocated_bytes.all.current"] == before
    free, total = ACCELERATOR.get_memory_info()
    assert total - free == before
    ACCELERATOR.empty_cache()
    ACCELERATOR.empty_host_cache()


def test_figures_are_per_device() -> None:
    before = [ACCELERATOR.memory_allocated(i) for i in (0, 1)]
    x = torch.empty(4096, device="neuron:1", dtype=torch.uint8)
    after = [ACCELERATOR.memory_allocated(i) for i in (0, 1)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, x.nbytes]
    assert ACCELERATOR.memory_allocated("neuron:1") == after[1]
    assert ACCELERATOR.memory_allocated(torch.device("neuron", 1)) == after[1]
