"""What PyTorch looks for under this name in a device module: ``_get_device_index``."""

import torch
from torch._utils import _get_device_index as _index_or_current

from torchneuron.device.devices import DeviceLike


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a neuron device; the current one for none given, if ``optional``.

    Does not check that the device exists. ValueError for a device of another type.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type not in ("neuron", "cpu"):
        raise ValueError(f"Expected a neuron device, but got: {device}")
    return _index_or_current(device, optional, allow_cpu)
