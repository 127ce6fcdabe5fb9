"""Between the graphs of a function that Dynamo breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.utils import counters


def broken(x: Tensor) -> Tensor:
    """What follows the break runs eagerly: Dynamo cannot trace it, and has to look at each frame."""
    y = x + 1
    torch._dynamo.graph_break()
    places = torch.nonzero(y > 0)
    torch._dynamo.graph_break()
    return places.sum() + torch.linalg.cholesky(y @ y.T + 9 * torch.eye(7, device=x.device)).sum()


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_dynamo_does_not_trace_the_lowering(device: str) -> None:
    """Programs for the operations in between are new; what makes them is none of the user's code."""
    graphs: list[fx.GraphModule] = []

    def collect(gm: fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    torch._dynamo.reset()
    counters.clear()
    x = torch.linspace(-2, 2, 7 * 13).reshape(7, 13)
    result = torch.compile(broken, backend=collect)(x.to(device))
    torch.testing.assert_close(result.cpu(), broken(x))
    assert len(graphs) == 3
    assert counters["frames"]["total"] == 4
