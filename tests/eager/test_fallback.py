"""Ops without a program run on the CPU by policy: counted, warned about once with the user's line, or refused."""

from collections.abc import Iterator

import pytest
import torch

import torchneuron.eager.fallback as fallback
from torchneuron.settings import settings

DEVICE = "neuron"
# An op that XLA:CPU has no program for.
OP = "aten::linalg_eig"


@pytest.fixture(autouse=True)
def _policy() -> Iterator[None]:
    before = settings.fallback
    fallback._warned.discard(OP)
    yield
    settings.fallback = before


def eig() -> torch.Tensor:
    return torch.linalg.eig(torch.eye(2, device=DEVICE))[0]


def test_warn_once_with_the_users_line() -> None:
    settings.fallback = "warn"
    with pytest.warns(fallback.FallbackWarning, match=OP) as caught:
        results = [eig() for _ in range(2)]
    warned = [item for item in caught if OP in str(item.message)]
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert results[0].device.type == DEVICE
    assert results[0].cpu().tolist() == [1, 1]


def test_every_call_is_counted() -> None:
    settings.fallback = "allow"
    before = torch.neuron.metrics()["fallbacks"].get(OP, 0)
    for _ in range(3):
        eig()
    assert torch.neuron.metrics()["fallbacks"][OP] == before + 3
    assert OP in torch.neuron.metrics_report()


def test_error_refuses() -> None:
    settings.fallback = "error"
    with pytest.raises(NotImplementedError, match=OP):
        eig()
    settings.fallback = "allow"
    assert eig().cpu().tolist() == [1, 1]
