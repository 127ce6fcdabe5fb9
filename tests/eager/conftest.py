"""What the tests of eager mode share."""

from collections.abc import Iterator

import pytest

from torchneuron.settings import settings


@pytest.fixture
def no_fallback() -> Iterator[None]:
    """What is tested runs on the device: an op that would go to the CPU raises."""
    before = settings.fallback
    settings.fallback = "error"
    yield
    settings.fallback = before
