"""Streams order work, events mark points in it. They are ``torch.Stream`` and ``torch.Event`` of this device."""

from types import TracebackType
from typing import Any

import torch

from torchneuron import _C
from torchneuron.device.devices import DeviceLike, index_of


class Stream(torch.Stream):
    """An order of issue on a device: ``Stream(device=None, priority=0)``.

    Example::

        side = torch.neuron.Stream()
        with torch.neuron.stream(side):
            y = x @ x
        torch.neuron.current_stream().wait_stream(side)
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, device=torch.device("neuron", index_of(device)), priority=priority, **kwargs)


class Event(torch.Event):
    """A point in a stream: ``Event(enable_timing=False, blocking=False, interprocess=False)``.

    With ``enable_timing`` the time at which the work before it completed is kept for ``elapsed_time`` (milliseconds).
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> "Event":
        if interprocess:
            raise NotImplementedError("neuron events cannot be shared between processes")
        return super().__new__(cls, "neuron", enable_timing=enable_timing, blocking=blocking)


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """This thread's current stream on ``device``."""
    return _wrap(torch.accelerator.current_stream(index_of(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream on which work runs unless another one is made current."""
    own = torch.accelerator.current_stream(index_of(device))
    return Stream(stream_id=0, device_index=own.device_index, device_type=own.device_type)


def set_stream(stream: torch.Stream) -> None:
    """Make ``stream`` current; its device becomes the current device."""
    torch.accelerator.set_stream(stream)


class stream:
    """Context manager that makes a stream current inside it; None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: torch.Stream | None = None
        self._device = -1

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device = _C.current_device()
            self._previous = torch.accelerator.current_stream(self.stream.device_index)
            torch.accelerator.set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            torch.accelerator.set_stream(self._previous)
            _C.set_device(self._device)
