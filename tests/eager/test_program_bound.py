"""Programs of single operations that stay loaded: a bounded number, those used of late."""

from collections.abc import Iterator

import pytest
import torch

import torchneuron._C as _C
from tests.conftest import RunPython
from torchneuron.settings import settings


@pytest.fixture
def bound() -> Iterator[int]:
    """A small bound, with nothing loaded at first."""
    before = settings.programs
    settings.programs = 16
    _C.forget_programs()
    yield settings.programs
    settings.programs = before


def _dropped() -> int:
    return int(torch.neuron.metrics()["programs_dropped"])


def _doubled(size: int) -> torch.Tensor:
    return torch.ones(size, device="neuron") + torch.ones(size, device="neuron")


def test_more_shapes_than_the_bound_drop_programs_and_stay_right(bound: int) -> None:
    """Each result is right, also the second time round, and programs were dropped."""
    before = _dropped()
    for size in [*range(1, 4 * bound), *range(1, 4 * bound)]:
        assert torch.equal(_doubled(size).cpu(), torch.full((size,), 2.0))
    assert _dropped() - before >= bound


def test_what_is_used_all_the_time_stays(run_python: RunPython) -> None:
    """A program that every round uses is loaded once; others come and go."""
    done = run_python(_ROUNDS, TORCHNEURON_PROGRAMS="16", TORCHNEURON_EAGER="strict")
    assert done.stdout.split() == ["0", "True"]


_ROUNDS = """
import torch

def loaded():
    metrics = torch.neuron.metrics()
    return metrics["programs_compiled"] + metrics["cache_hits_disk"]

def doubled():
    return torch.ones(1000, device="neuron") + torch.ones(1000, device="neuron")

doubled()
again = 0
for size in range(1, 64):
    torch.ones(size, device="neuron").neg()
    before = loaded()
    doubled()
    again += loaded() - before
print(again, torch.neuron.metrics()["programs_dropped"] > 64)
"""


def test_the_bound_is_a_positive_number() -> None:
    """Anything else is refused with the setting's name."""
    with pytest.raises(ValueError, match="programs"):
        settings.programs = 0
