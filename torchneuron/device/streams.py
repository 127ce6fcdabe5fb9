"""Streams order work, events mark points in it: ``torch.Stream`` and ``torch.Event`` of neuron."""

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
        """A stream from the device's pool, or the one that ``stream_id`` and so on name."""
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        where = torch.device("neuron", index_of(device))
        return super().__new__(cls, device=where, priority=priority, **kwargs)


class _NeuronEvents(type):
    """Makes every ``torch.Event`` of a neuron device an instance of ``torch.neuron.Event``."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "neuron"


class Event(torch.Event, metaclass=_NeuronEvents):
    """A point in a stream: ``Event(enable_timing=False, blocking=False, interprocess=False)``.

    With ``enable_timing`` the time at which the work before it completed is kept for
    ``elapsed_time`` (milliseconds). What is made is a plain ``torch.Event``: PyTorch's streams and
    events take no subclass of it.
    """

    def __new__(  # type: ignore[misc]  # see above
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        """NotImplementedError with ``interprocess``."""
        if interprocess:
            raise NotImplementedError("neuron events cannot be shared between processes")
        return torch.Event("neuron", enable_timing=enable_timing, blocking=blocking)


def _wrap(stream: torch.Stream, stream_id: int) -> Stream:
    return Stream(
        stream_id=stream_id, device_index=stream.device_index, device_type=stream.device_type
    )


def current_stream(device: DeviceLike = None) -> Stream:
    """This thread's current stream on ``device``."""
    stream = torch.accelerator.current_stream(index_of(device))
    return _wrap(stream, stream.stream_id)


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream on which work runs unless another one is made current."""
    return _wrap(torch.accelerator.current_stream(index_of(device)), 0)


def set_stream(stream: torch.Stream) -> None:
    """Make ``stream`` current; its device becomes the current device."""
    torch.accelerator.set_stream(stream)


class stream:
    """Context manager that makes a stream and its device current inside it; None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        """``stream`` may be any ``torch.Stream`` of a neuron device."""
        self.stream = stream
        self._previous: torch.Stream | None = None
        self._device = -1

    def __enter__(self) -> None:
        """Make the stream current."""
        if self.stream is not None:
            self._device = _C.current_device()
            self._previous = torch.accelerator.current_stream(self.stream.device_index)
            torch.accelerator.set_stream(self.stream)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Make the previous stream and device current again."""
        if self._previous is not None:
            torch.accelerator.set_stream(self._previous)
            _C.set_device(self._device)
