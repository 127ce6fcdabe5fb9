"""The device's random operators draw from the distributions that they should, and a wrong one is found."""

import pytest
import torch

from tests.conformance import statistics
from torchneuron.settings import settings


@pytest.mark.parametrize("name", statistics.DISTRIBUTIONS)
def test_draws_have_their_distribution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "fallback", "allow")
    dtype = torch.int64 if name == "randperm" else torch.float32
    assert statistics.problem(name, dtype) == ""


def test_another_distribution_is_found() -> None:
    drawn = torch.rand(16384, generator=torch.Generator().manual_seed(1)).double()
    right = statistics.misfit(drawn, lambda x: x)
    assert right == ""
    assert "distribution" in statistics.misfit(drawn, lambda x: (1.05 * x).clamp(max=1))
    assert "distribution" in statistics.misfit(drawn * torch.nan, lambda x: x)


def test_draws_that_depend_on_each_other_are_found() -> None:
    drawn = torch.rand(8192, generator=torch.Generator().manual_seed(1)).double()
    assert "depends" in statistics.misfit(drawn.repeat_interleave(2), lambda x: x)
