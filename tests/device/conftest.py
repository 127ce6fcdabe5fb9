"""What the tests of the device share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def first_device() -> Iterator[None]:
    """Every test starts and leaves on neuron:0."""
    torch.neuron.set_device(0)
    yield
    torch.neuron.set_device(0)
