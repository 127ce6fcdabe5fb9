"""The current device, and the guards that change it."""

import threading

import pytest
import torch

COUNT = torch.neuron.device_count()


def test_set_device() -> None:
    assert torch.neuron.current_device() == 0
    torch.neuron.set_device("neuron:1")
    assert torch.neuron.current_device() == 1
    assert torch.zeros(1, device="neuron").device == torch.device("neuron:1")
    assert torch.zeros(1).to("neuron").device.index == 1
    torch.neuron.set_device(-1)
    assert torch.neuron.current_device() == 1
    torch.neuron.set_device(torch.device("neuron", 0))
    assert torch.neuron.current_device() == 0


def test_device_context() -> None:
    with torch.neuron.device(1):
        assert torch.neuron.current_device() == 1
        with torch.neuron.device("neuron:0"):
            assert torch.neuron.current_device() == 0
        with torch.neuron.device(None), torch.neuron.device(-1):
            assert torch.neuron.current_device() == 1
    with pytest.raises(ZeroDivisionError), torch.neuron.device(1):
        raise ZeroDivisionError
    assert torch.neuron.current_device() == 0


def test_device_of() -> None:
    there = torch.zeros(1, device="neuron:1")
    with torch.neuron.device_of(there):
        assert torch.neuron.current_device() == 1
    with torch.neuron.device_of(there.untyped_storage()):
        assert torch.neuron.current_device() == 1
    with torch.neuron.device_of(torch.zeros(1)):
        assert torch.neuron.current_device() == 0


def test_operations_run_where_their_tensors_are() -> None:
    x = torch.ones(3, device="neuron:1")
    assert (x + x).device.index == 1
    assert torch.zeros_like(x).device.index == 1
    assert x.new_zeros(2).device.index == 1
    assert torch.neuron.current_device() == 0


def test_each_thread_has_its_own_current_device() -> None:
    seen: list[int] = []

    def work() -> None:
        seen.append(torch.neuron.current_device())
        torch.neuron.set_device(1)
        seen.append(torch.zeros(1, device="neuron").device.index)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0, 1]
    assert torch.neuron.current_device() == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.neuron.set_device(COUNT),
        lambda: torch.neuron.device(COUNT),
        lambda: torch.neuron.synchronize(COUNT),
        lambda: torch.neuron.memory_allocated(COUNT),
        lambda: torch.neuron.get_device_properties(COUNT),
        lambda: torch.neuron.get_rng_state(COUNT),
        lambda: torch.neuron.current_stream(COUNT),
        lambda: torch.neuron.Stream(COUNT),
        lambda: torch.accelerator.set_device_index(COUNT),
        lambda: torch.accelerator.synchronize(COUNT),
        lambda: torch.accelerator.memory_allocated(COUNT),
        lambda: torch.empty(2, device=f"neuron:{COUNT}"),
        lambda: torch.zeros(2, device=f"neuron:{COUNT}"),
        lambda: torch.tensor([1.0], device=f"neuron:{COUNT}"),
        lambda: torch.zeros(2).to(f"neuron:{COUNT}"),
        lambda: torch.randn(2, device="neuron:99"),
        lambda: torch.zeros(2, device="neuron:0").to("neuron:99"),
        lambda: torch.Generator(f"neuron:{COUNT}"),
        lambda: torch.UntypedStorage(4, device=f"neuron:{COUNT}"),
    ],
)
def test_a_device_that_does_not_exist(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RuntimeError, match=rf"{COUNT} neuron device\(s\)|device_index|99"):
        call()
    assert torch.neuron.current_device() == 0


def test_devices_of_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected a neuron device, but got: cpu"):
        torch.neuron.set_device("cpu")
    with pytest.raises(ValueError, match="Expected a neuron device"):
        torch.neuron.synchronize(torch.device("cuda", 0))
    with pytest.raises(RuntimeError):
        torch.neuron.device("nonsense")


def test_properties() -> None:
    properties = torch.neuron.get_device_properties(0)
    assert properties.name == torch.neuron.get_device_name() == "neuron trn2"
    assert properties.total_memory == 24 << 30 == torch.neuron.mem_get_info()[1]
    assert properties.multi_processor_count == 2
    assert isinstance(properties.emulated, bool)
    assert torch.neuron.get_device_capability() == (3, 0)
    assert torch.neuron.is_built()
    assert torch.neuron.is_bf16_supported()


def test_initialization_state_is_what_pytorch_reads() -> None:
    torch.neuron.init()
    assert torch.neuron.is_initialized()
    assert torch.neuron._initialized is True
    assert torch.neuron._is_in_bad_fork() is False
    assert torch.neuron._utils._get_device_index("neuron:1") == 1
    assert torch.neuron._utils._get_device_index("neuron", optional=True) == 0
    assert not hasattr(torch.neuron, "no_such_thing")


def test_data_parallel_helpers_see_the_devices() -> None:
    assert torch._utils._get_all_device_indices() == list(range(COUNT))
    assert torch._utils._get_devices_properties([0])[0].total_memory > 0
