"""Devices: how many, which one, what they are."""

from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from torchneuron import _C
from torchneuron.settings import settings
from torchneuron.targets import current_target

DeviceLike = torch.device | int | str | None


def index_of(device: DeviceLike = None) -> int:
    """The index of ``device``; None and an index-less ``"neuron"`` mean the current one.

    Raises ValueError for a device of another type, RuntimeError for an index out of range.
    """
    if device is None:
        return _C.current_device()
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "neuron":
            raise ValueError(f"Expected a neuron device, but got: {device}")
        index = _C.current_device() if device.index is None else device.index
    else:
        index = int(device)
        if index < 0:
            index = _C.current_device()
    if index >= _C.device_count():
        raise RuntimeError(f"neuron:{index} does not exist: this process has {_C.device_count()} neuron device(s)")
    return index


def is_built() -> bool:
    """True: the package carries its core."""
    return True


def is_available() -> bool:
    """Whether neuron tensors can be used in this process. Starts nothing."""
    return _C.device_count() > 0


def is_initialized() -> bool:
    """Whether the client has been started."""
    return _C.is_initialized()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every target computes in bfloat16."""
    return True


def init() -> None:
    """Start the client now instead of with the first tensor. RuntimeError if there is no plugin."""
    _C.init()


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def device_count() -> int:
    """Number of devices of this process."""
    return _C.device_count()


def current_device() -> int:
    """Index of this thread's current device."""
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Make ``device`` this thread's current one. RuntimeError for an index out of range."""
    _C.set_device(index_of(device))


def synchronize(device: DeviceLike = None) -> None:
    """Wait until all work queued on ``device`` has completed."""
    _C.synchronize(index_of(device))


class device:
    """Context manager that makes ``device`` current inside it; a negative index or None changes nothing.

    Example::

        with torch.neuron.device(1):
            x = torch.zeros(3, device="neuron")  # on neuron:1
    """

    def __init__(self, device: Any) -> None:
        negative = isinstance(device, int) and device < 0
        self.idx = -1 if device is None or negative else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = _C.current_device()
            _C.set_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.idx >= 0:
            _C.set_device(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a neuron tensor current; does nothing for other tensors."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(obj.device.index if obj.device.type == "neuron" else None)


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is. ``total_memory`` is in bytes; ``emulated`` tells that the host CPU stands in for the chip."""

    name: str
    total_memory: int
    target: str
    multi_processor_count: int
    emulated: bool


def get_device_name(device: DeviceLike = None) -> str:
    """Such as ``"neuron trn2"``."""
    index_of(device)
    return f"neuron {current_target().name}"


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """(generation of the NeuronCore, 0): (3, 0) for trn2, (4, 0) for trn3."""
    index_of(device)
    return (int(current_target().name[-1]) + 1, 0)


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Properties of one logical core of the target."""
    from torchneuron.program.plugin import neuron_devices

    index_of(device)
    target = current_target()
    return DeviceProperties(
        name=target.name,
        total_memory=_C.memory_limit(),
        target=target.name,
        multi_processor_count=settings.logical_nc_config,
        emulated=not neuron_devices(),
    )
