"""Devices: how many, which one, what they are."""

from dataclasses import dataclass
from types import TracebackType

import torch

from torchneuron import _C
from torchneuron.settings import settings
from torchneuron.targets import current_target

DeviceLike = torch.device | int | str | None


def index_of(device: DeviceLike = None) -> int:
    """The index of ``device``; None, a negative one and a bare ``"neuron"`` mean the current one.

    Raises ValueError for a device of another type, RuntimeError for an index out of range.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "neuron":
            raise ValueError(f"Expected a neuron device, but got: {device}")
        device = device.index
    if device is None or device < 0:
        return _C.current_device()
    count = _C.device_count()
    if device >= count:
        raise RuntimeError(
            f"neuron:{device} does not exist: this process has {count} neuron device(s)"
        )
    return int(device)


def is_built() -> bool:
    """True: the package carries its core."""
    return True


def is_available() -> bool:
    """Whether this process has neuron devices. Starts nothing."""
    return _C.device_count() > 0


def is_initialized() -> bool:
    """Whether the client has been started, in this process and not in one it was forked from."""
    return _C.is_initialized()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every target computes in bfloat16."""
    return True


def init() -> None:
    """Start the client now instead of with the first tensor. RuntimeError if there is no plugin."""
    _C.init()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had started the client."""
    return _C.in_bad_fork()


def device_count() -> int:
    """Number of devices of this process. Starts nothing."""
    return _C.device_count()


def current_device() -> int:
    """Index of this thread's current device."""
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Make ``device`` this thread's current one; a negative index changes nothing.

    Raises RuntimeError for an index out of range, ValueError for a device of another type.
    """
    _C.set_device(index_of(device))


def synchronize(device: DeviceLike = None) -> None:
    """Wait until all work queued on ``device`` has completed."""
    _C.synchronize(index_of(device))


class device:
    """Context manager that makes ``device`` current inside it.

    A negative index or None changes nothing. Example::

        with torch.neuron.device(1):
            x = torch.zeros(3, device="neuron")  # on neuron:1
    """

    def __init__(self, device: DeviceLike) -> None:
        """Raises RuntimeError for an index out of range."""
        nothing = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if nothing else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        """Make the device current."""
        if self.idx >= 0:
            self.prev_idx = _C.current_device()
            _C.set_device(self.idx)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Make the previous device current again."""
        if self.idx >= 0:
            _C.set_device(self.prev_idx)


class device_of(device):
    """Context manager that makes a neuron tensor's device current; nothing for other tensors."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        """``obj`` may be a tensor or a storage."""
        super().__init__(obj.device if obj.device.type == "neuron" else None)


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is.

    ``total_memory`` is in bytes, ``multi_processor_count`` the physical cores of the logical one;
    ``emulated`` says that the host CPU stands in for the chip.
    """

    name: str
    target: str
    core: str
    total_memory: int
    multi_processor_count: int
    emulated: bool


def get_device_name(device: DeviceLike = None) -> str:
    """Such as ``"neuron trn2"``."""
    index_of(device)
    return f"neuron {current_target().name}"


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """(generation of the NeuronCore, 0): (3, 0) for trn2, (4, 0) for trn3."""
    index_of(device)
    return int(current_target().core.rpartition("v")[2]), 0


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """What one logical core of the target is. Starts nothing."""
    from torchneuron.program.plugin import neuron_devices

    index_of(device)
    target = current_target()
    return DeviceProperties(
        name=get_device_name(),
        target=target.name,
        core=target.core,
        total_memory=_C.memory_limit(),
        multi_processor_count=settings.logical_nc_config,
        emulated=not neuron_devices(),
    )
