"""Ops may fall back while they are counted, and need not say so."""

import warnings
from collections.abc import Iterator

import pytest

from torchneuron.settings import settings


@pytest.fixture(autouse=True)
def _policy() -> Iterator[None]:
    before = settings.fallback
    settings.fallback = "allow"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    settings.fallback = before
