"""The core's side of a compiled call: how it takes its arguments, and what it leaves of them."""

import weakref
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchneuron import _C
from torchneuron.compile.compiled import CompiledGraph
from torchneuron.compile.options import Options


def runner(function: Any, *args: torch.Tensor) -> _C.Graph:
    graph = make_fx(torch.func.functionalize(function), tracing_mode="fake")(*args)
    return CompiledGraph(graph, "inference", Options()).runner


@pytest.mark.parametrize("count", [2, 12, 13, 40, 200])
def test_many_tensors_of_which_some_share_storages(count: int) -> None:
    base = torch.arange(float(count + 3))
    given = [base[i : i + 3] if i % 3 else torch.full((3,), float(i)) for i in range(count)]
    there = base.to("neuron")
    moved = [there[i : i + 3] if i % 3 else t.to("neuron") for i, t in enumerate(given)]

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [sum(tensor * i for i, tensor in enumerate(tensors, 1))]  # type: ignore[list-item]

    run = runner(function, *moved)
    for _ in range(2):
        torch.testing.assert_close(run(list(moved))[0].cpu(), function(*given)[0])
    # Which tensors share a storage is part of what a program is made for.
    apart = [tensor.clone() for tensor in moved]
    torch.testing.assert_close(run(apart)[0].cpu(), function(*given)[0])
    assert run.programs == 2


def test_the_list_is_emptied_and_its_tensors_are_not_kept() -> None:
    kept, dropped = (torch.ones(3, device="neuron") for _ in range(2))
    run = runner(lambda x, y: [x + y], kept, dropped)
    arguments = [kept, dropped]
    gone = weakref.ref(dropped)
    del dropped
    result = run(arguments)[0]
    assert arguments == []
    assert gone() is None
    assert kept.tolist() == [1.0] * 3
    assert result.tolist() == [2.0] * 3


def test_a_result_that_is_an_argument_outlives_the_call() -> None:
    x = torch.ones(3, device="neuron")
    run = runner(lambda x: [x, x.view(3, 1)], x)
    same, view = run([x])
    assert same is x
    del x, same
    assert view.tolist() == [[1.0]] * 3


def test_what_no_graph_takes() -> None:
    x = torch.ones(3, device="neuron")
    run = runner(lambda x, y: [x + y], x, x)
    with pytest.raises(TypeError, match="takes tensors, numbers and None, not .*str"):
        run([x, "y"])
    with pytest.raises(RuntimeError, match="takes 2 arguments, not 1"):
        run([x])
    with pytest.raises(TypeError, match="one list"):
        run(x)
    assert run((x, x))[0].tolist() == [2.0] * 3
    assert x.tolist() == [1.0] * 3
