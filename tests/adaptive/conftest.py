"""Adaptive mode for a test, with windows made at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchneuron import _C
from torchneuron.settings import settings


@pytest.fixture
def adaptive() -> Iterator[None]:
    """What is seen twice becomes a window, and the queue waits for its program."""
    before = settings.eager
    settings.eager = "adaptive"
    _C.set_window_tuning(sightings=2, min_steps=2, max_windows=64, wait=True, trials=0)
    yield
    _C.set_window_tuning()
    settings.eager = before
