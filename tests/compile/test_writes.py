"""Writes of one position to large buffers, through views as well: right, and no copy of the buffer."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

DEVICE = "neuron"
# Large enough that a write is worth a loop of its own.
ROOM = (2, 3, 64, 16)


def index_copy(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    x[0].index_copy_(1, at.view(1), new)
    x[1].index_copy_(1, at.view(1), new + 1)


def index_put(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    x[0][:, at.view(1)] = new
    x[1, :, at.view(1)] = new + 1


def index_add(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    x[1].index_add_(1, at.view(1), new)


def accumulated(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    x[1].index_put_((torch.tensor(2, device=x.device), at.view(1)), new[0], accumulate=True)


def narrowed(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    """The index counts from the start of a view that is not the buffer's."""
    x[1][:, 8:40].index_copy_(1, at.view(1), new)


def columns(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    """Single elements of each row."""
    x[0].index_copy_(
        2, at.view(1), new.transpose(1, 2).expand(3, 16, 4)[:, :1, :1].expand(3, 64, 1)
    )


WRITES: list[Callable[..., None]] = [
    index_copy,
    index_put,
    index_add,
    accumulated,
    narrowed,
    columns,
]


def step(write: Callable[..., None], *given: torch.Tensor) -> torch.Tensor:
    """What decoding does: write, then read all."""
    write(*given)
    return given[0][0] @ given[0][1].mT + given[0].sum()


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_writes_at_one_position(write: Callable[..., None], compiled: bool) -> None:
    torch.manual_seed(0)
    buffer, new = torch.randn(ROOM), torch.randn(3, 1, 16)
    on_device = copy.deepcopy(buffer).to(DEVICE)
    run: Any = torch.compile(step, backend="neuron", fullgraph=True) if compiled else step
    for position in (5, 0, 11):
        at = torch.tensor(position)
        expected = step(write, buffer, at, new)
        found = run(write, on_device, at.to(DEVICE), new.to(DEVICE))
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(on_device.cpu(), buffer)


@pytest.mark.parametrize("write", [index_copy, index_add, narrowed])
def test_a_position_outside_writes_nothing(write: Callable[..., None]) -> None:
    run = torch.compile(write, backend="neuron", fullgraph=True)
    x = torch.randn(ROOM, device=DEVICE)
    before = x.cpu()
    for position in (-1, 64, 1000):
        run(x, torch.tensor(position, device=DEVICE), torch.ones(3, 1, 16, device=DEVICE))
        assert x.cpu().equal(before)
