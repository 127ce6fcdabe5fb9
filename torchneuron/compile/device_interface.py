"""What TorchDynamo wants to know of the device: one adapter to its registry of device interfaces."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

from torchneuron import device as neuron
from torchneuron.device import streams


class NeuronInterface(DeviceInterface):
    """``torch.neuron`` in the terms of ``DeviceInterface``."""

    Event = streams.Event
    Stream = streams.Stream

    class device:
        """Context manager that makes a device the current one."""

        def __new__(cls, device: torch.types.Device) -> Any:
            """``torch.neuron.device(device)``."""
            return neuron.device(device)

    class Worker(DeviceInterface.Worker):
        """What compile workers ask; ours need nothing that the process itself does not tell."""

        set_device = staticmethod(neuron.set_device)
        current_device = staticmethod(neuron.current_device)
        get_device_properties = staticmethod(neuron.get_device_properties)

    current_device = staticmethod(neuron.current_device)
    set_device = staticmethod(neuron.set_device)
    device_count = staticmethod(neuron.device_count)
    is_available = staticmethod(neuron.is_available)
    stream = staticmethod(neuron.stream)
    current_stream = staticmethod(neuron.current_stream)
    set_stream = staticmethod(neuron.set_stream)
    synchronize = staticmethod(neuron.synchronize)
    get_device_properties = staticmethod(neuron.get_device_properties)
    memory_allocated = staticmethod(neuron.memory_allocated)
    is_bf16_supported = staticmethod(neuron.is_bf16_supported)

    @staticmethod
    def exchange_device(device: int) -> int:
        """Make ``device`` the current one and give the one before; a negative one changes nothing."""
        return int(torch._C._accelerator_exchangeDevice(device))

    @staticmethod
    def maybe_exchange_device(device: int) -> int:
        """As ``exchange_device``, without touching a device that was never used."""
        return int(torch._C._accelerator_maybeExchangeDevice(device))

    @staticmethod
    def get_compute_capability(device: torch.types.Device = None) -> str:
        """The target's name."""
        return str(neuron.get_device_properties(device).name)

    @staticmethod
    def is_triton_capable(device: torch.types.Device = None) -> bool:
        """False: nothing here compiles with Triton."""
        return False


@cache
def register() -> None:
    """Tell TorchDynamo of the device; once."""
    register_interface_for_device("neuron", NeuronInterface)
    for index in range(neuron.device_count()):
        register_interface_for_device(f"neuron:{index}", NeuronInterface)
