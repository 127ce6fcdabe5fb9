"""The example scripts and benchmarks on the import path, and the device they are tested on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "benchmarks")]


@pytest.fixture
def device() -> str:
    """The neuron device; without one, the tests fail."""
    assert torch.accelerator.is_available(), "no accelerator: is torchneuron installed?"
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    assert accelerator.type == "neuron"
    return accelerator.type
