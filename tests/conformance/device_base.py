"""For TORCH_TEST_DEVICES: what PyTorch's device-generic tests need to know of the device.

    TORCH_TEST_DEVICES=tests/conformance/device_base.py python test_something.py

PyTorch runs this file from its own test module and takes TEST_CLASS.
"""

import torch
from torch.testing._internal.common_device_type import DeviceTypeTestBase


class NeuronTestBase(DeviceTypeTestBase):
    """Test classes get the suffix NEURON."""

    device_type = "neuron"

    @classmethod
    def get_all_devices(cls) -> list[str]:
        return [f"neuron:{index}" for index in range(torch.neuron.device_count())]


TEST_CLASS = NeuronTestBase
