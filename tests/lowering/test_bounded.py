"""Ops of data-dependent sizes: padded programs, narrowed by their counts, against the CPU."""

import operator

import pytest
import torch
from torch import fx

from tests.lowering.harness import call, check_ops, execute
from torchneuron.lowering import (
    FreshOutput,
    LoweringError,
    ProgramSpec,
    StorageSpec,
    TensorInput,
    lower,
)
from torchneuron.lowering.bounded import bounded_outputs, padded_values

aten = torch.ops.aten
nan = float("nan")


def run_bounded(op, *args, **kwargs):
    """The op's results from a bounded program on dense tensors."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    metas = [arg.to("meta") if isinstance(arg, torch.Tensor) else arg for arg in args]
    outputs = bounded_outputs(op, metas, kwargs)
    graph = fx.Graph()
    placeholders = iter([graph.placeholder(f"t{i}") for i in range(len(tensors))])
    nodes = [next(placeholders) if isinstance(arg, torch.Tensor) else arg for arg in args]
    node = graph.call_function(op, tuple(nodes), kwargs)
    node.meta["val"] = padded_values(outputs)
    items = [graph.call_function(operator.getitem, (node, i)) for i in range(len(outputs))]
    graph.output(tuple(items))
    spec = ProgramSpec(
        tuple(StorageSpec(t.dtype, t.numel()) for t in tensors),
        tuple(
            TensorInput(i, t.dtype, tuple(t.shape), tuple(t.stride()), False)
            for i, t in enumerate(tensors)
        ),
        tuple(FreshOutput(one.dtype, one.sizes, one.strides) for one in outputs),
    )
    lowered = lower(fx.GraphModule(torch.nn.Module(), graph), spec)
    flat = execute(lowered, spec, [t.reshape(-1) for t in tensors])
    *results, counts = (
        torch.as_strided(value, one.sizes, one.strides)
        for value, one in zip(flat, outputs, strict=True)
    )
    return [
        value[: counts[one.count]] if one.count >= 0 else value
        for value, one in zip(results, outputs[:-1], strict=True)
    ]


def check(op, *args, **kwargs):
    expected = op(*args, **kwargs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = run_bounded(op, *args, **kwargs)
    for got, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True, check_stride=False)


def sparse(*shape):
    torch.manual_seed(sum(shape))
    return torch.randint(-2, 3, shape)


@pytest.mark.parametrize(
    "x",
    [sparse(40), sparse(3, 5, 4).float(), sparse(7, 3) > 0, torch.zeros(4), torch.empty(0, 2)],
    ids=["int", "float", "bool", "zeros", "empty"],
)
def test_nonzero(x):
    check(aten.nonzero.default, x)


def test_nonzero_of_a_number():
    check(aten.nonzero.default, torch.tensor(3.0))


def test_masked_select():
    x = sparse(4, 6).float()
    check(aten.masked_select.default, x, x > 0)
    check(aten.masked_select.default, x, torch.tensor([[True], [False], [True], [True]]))
    check(aten.masked_select.default, torch.arange(3), torch.zeros(2, 1, dtype=torch.bool))


@pytest.mark.parametrize(
    "x",
    [sparse(30), sparse(4, 9).double(), torch.tensor([nan, 1.0, nan, 1.0]), torch.empty(0)],
    ids=["int", "double", "nan", "empty"],
)
def test_unique(x):
    check(aten._unique2.default, x, True, True, True)
    check(aten._unique2.default, x)
    check(aten._unique.default, x, True, True)
    check(aten.unique_consecutive.default, x, True, True)


def test_unique_along_a_dimension():
    x = torch.randint(0, 2, (12, 2, 2), generator=torch.Generator().manual_seed(0))
    for rows in (x, x.float(), x.to(torch.uint8)):
        check(aten.unique_dim.default, rows, 0, True, True, True)
        check(aten.unique_dim_consecutive.default, rows, 0, True, True)
    check(aten.unique_consecutive.default, x, False, True, 0)
    with pytest.raises(LoweringError, match="dimension 0"):
        bounded_outputs(aten.unique_dim.default, (x.to("meta"), 1), {})


def test_the_op_alone_is_refused():
    graph = fx.Graph()
    node = graph.call_function(aten.nonzero.default, (graph.placeholder("x"),))
    node.meta["val"] = torch.empty(3, 1, dtype=torch.int64, device="meta")
    graph.output((node,))
    spec = ProgramSpec(
        (StorageSpec(torch.bool, 4),),
        (TensorInput(0, torch.bool, (4,), (1,), False),),
        (FreshOutput(torch.int64, (3, 1), (1, 1)),),
    )
    with pytest.raises(LoweringError, match="depends on data"):
        lower(fx.GraphModule(torch.nn.Module(), graph), spec)


def test_other_ops_are_not_bounded():
    assert bounded_outputs(aten.relu.default, (torch.empty(2, device="meta"),), {}) is None


def test_relatives_of_known_size():
    x, repeats = sparse(4, 5), torch.tensor([2, 0, 3, 1])
    check_ops(
        [
            call(aten.nonzero_static.default, x, size=7),
            call(aten.nonzero_static.default, x, size=40, fill_value=9),
            call(aten.nonzero_static.default, x[0] > 5, size=3),
            call(aten.repeat_interleave.Tensor, repeats, output_size=6),
            call(aten.repeat_interleave.Tensor, repeats.int(), output_size=6),
            call(aten.repeat_interleave.Tensor, torch.zeros(3, dtype=torch.int64), output_size=0),
        ]
    )
