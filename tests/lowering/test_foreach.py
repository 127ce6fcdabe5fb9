"""Ops on lists of tensors against PyTorch's CPU."""

import operator
from collections.abc import Sequence

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops, run_op

aten = torch.ops.aten

_SHAPES: tuple[tuple[int, ...], ...] = ((3,), (2, 4), (), (0, 5))
_NOT_EMPTY = _SHAPES[:3]

_UNARY = [
    "abs",
    "asin",
    "acos",
    "atan",
    "ceil",
    "clone",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "zero",
]


def tensors(
    dtype: torch.dtype = torch.float32,
    positive: bool = False,
    shapes: Sequence[tuple[int, ...]] = _SHAPES,
) -> list[torch.Tensor]:
    if dtype.is_floating_point or dtype.is_complex:
        wide = dtype if dtype.is_complex else torch.float64
        values = [torch.randn(shape, dtype=wide).to(dtype) for shape in shapes]
        return [value.abs() + 0.1 for value in values] if positive else values
    return [torch.randint(1 if positive else -5, 6, shape).to(dtype) for shape in shapes]


def overload(name: str) -> torch._ops.OpOverload:
    base, _, variant = name.partition(".")
    return getattr(getattr(aten, f"_foreach_{base}"), variant or "default")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_unary() -> None:
    calls = []
    for name in _UNARY:
        inside = [value / 10 for value in tensors(positive=name not in ("asin", "acos", "erf"))]
        calls.append(call(overload(name), inside))
        calls.append(call(overload(name), [value.bfloat16() for value in inside]))
    check_ops(calls)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_arithmetic_promotes_for_each_tensor(name: str) -> None:
    calls: list[Call] = []
    pairs = (
        (torch.float32, torch.float32),
        (torch.int64, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.int32, torch.int32),
    )
    for dtype, other in pairs:
        right = tensors(other, positive=name == "div")
        calls.append(call(overload(f"{name}.List"), tensors(dtype), right))
        if name in ("add", "sub"):
            calls.append(call(overload(f"{name}.List"), tensors(dtype), right, alpha=2))
        for number in (1.5, 3):
            calls.append(call(overload(f"{name}.Scalar"), tensors(dtype), number))
        calls.append(call(overload(f"{name}.ScalarList"), tensors(dtype), [1.5, 2.5, 3.5, 4.5]))
        calls.append(call(overload(f"{name}.ScalarList"), tensors(dtype), [1, 2, 3, 4]))
        if name != "sub":
            calls.append(call(overload(f"{name}.Tensor"), tensors(dtype), torch.tensor(2.5)))
    check_ops(calls)
    check_ops(calls[:6], static_numbers=True)


def test_lists_of_mixed_dtypes() -> None:
    mixed = [torch.randn(3), torch.randint(5, (2,)), torch.randn(2, dtype=torch.float64)]
    check_ops(
        [
            call(aten._foreach_mul.Scalar, mixed, 1.5),
            call(aten._foreach_add.ScalarList, mixed, [1, 2, 3]),
            call(aten._foreach_add.Tensor, mixed, torch.tensor(2.5), alpha=3),
        ]
    )


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max", "maximum", "minimum"])
def test_extrema(name: str) -> None:
    calls = []
    for dtype, number, numbers in (
        (torch.float32, 0.5, [0.1, -0.2, 0.3, 0.4]),
        (torch.bfloat16, 0.5, [0.1, -0.2, 0.3, 0.4]),
        (torch.int32, 1, [1, -2, 3, 4]),
    ):
        calls.append(call(overload(f"{name}.List"), tensors(dtype), tensors(dtype)))
        calls.append(call(overload(f"{name}.Scalar"), tensors(dtype), number))
        calls.append(call(overload(f"{name}.ScalarList"), tensors(dtype), numbers))
    check_ops(calls)


def test_powers_and_interpolation() -> None:
    check_ops(
        [
            call(aten._foreach_pow.List, tensors(positive=True), tensors()),
            call(aten._foreach_pow.Scalar, tensors(positive=True), 2.5),
            call(aten._foreach_pow.Scalar, tensors(torch.int64), 2),
            call(aten._foreach_pow.ScalarList, tensors(positive=True), [1.0, 2.0, 0.5, 3.0]),
            call(aten._foreach_pow.ScalarAndTensor, 2.5, tensors()),
            call(aten._foreach_lerp.List, tensors(), tensors(), tensors()),
            call(aten._foreach_lerp.Scalar, tensors(), tensors(), 0.3),
            call(aten._foreach_lerp.Scalar, tensors(torch.bfloat16), tensors(torch.bfloat16), 0.7),
            call(aten._foreach_lerp.ScalarList, tensors(), tensors(), [0.1, 0.2, 0.7, 0.8]),
        ]
    )


@pytest.mark.parametrize("name", ["addcdiv", "addcmul"])
def test_pointwise(name: str) -> None:
    calls = []
    for dtype in (torch.float32, torch.float16, torch.complex64):
        lists = [tensors(dtype), tensors(dtype), tensors(dtype, positive=dtype.is_floating_point)]
        calls.append(call(overload(f"{name}.Scalar"), *lists))
        calls.append(call(overload(f"{name}.Scalar"), *lists, 0.3))
        calls.append(call(overload(f"{name}.Scalar"), *lists, value=0.3))
        calls.append(call(overload(f"{name}.ScalarList"), *lists, [0.1, 0.2, 0.3, 0.4]))
    lists = [tensors(), tensors(), tensors(positive=True)]
    calls.append(call(overload(f"{name}.Tensor"), *lists, torch.tensor([0.1, 0.2, 0.3, 0.4])))
    check_ops(calls)


def test_reductions() -> None:
    calls = [call(aten._foreach_max.default, tensors(shapes=_NOT_EMPTY))]
    for order in (2, 1, 3.0, 0, float("inf")):
        for dtype, accumulate in ((torch.float32, None), (torch.bfloat16, torch.float32)):
            inputs = tensors(dtype, shapes=_NOT_EMPTY)
            calls.append(call(aten._foreach_norm.Scalar, inputs, order, accumulate))
            if order not in (0, float("inf")):
                calls.append(call(aten._foreach_powsum.Scalar, inputs, order, accumulate))
    calls.append(call(aten._foreach_norm.Scalar, tensors(torch.complex64, shapes=_NOT_EMPTY)))
    check_ops(calls)


def test_copies_and_products() -> None:
    check_ops(
        [
            call(aten._foreach_copy.default, tensors(torch.bfloat16), tensors()),
            call(aten._foreach_copy.default, [torch.zeros(2, 3)], [torch.randn(3)]),
            call(aten._foreach_mm.default, [torch.rand(2, 3)], [torch.rand(3, 4)]),
        ]
    )


def test_views_of_one_storage() -> None:
    base = torch.randn(40)
    views = [base[4:12].view(2, 4).t(), base[20:23], base[7]]
    run_op(aten._foreach_mul.ScalarList, views, [2.0, 3.0, 4.0])


def test_equal_numbers_as_one_operand() -> None:
    """What the eager layer makes of a list of equal numbers: one 0-d operand, used for every tensor."""
    from torch import fx

    from tests.lowering.harness import execute
    from torchneuron.lowering import (
        FreshOutput,
        ProgramSpec,
        ScalarInput,
        StorageSpec,
        TensorInput,
        lower,
    )

    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{i}") for i in range(3)]
    number = graph.placeholder("number")
    results = graph.call_function(aten._foreach_div.ScalarList, (nodes, [number] * 3))
    graph.output(tuple(graph.call_function(operator.getitem, (results, i)) for i in range(3)))
    inputs = [TensorInput(i, torch.float32, (4,), (1,)) for i in range(3)]
    spec = ProgramSpec(
        tuple(StorageSpec(torch.float32, 4) for _ in range(3)),
        (*inputs, ScalarInput(torch.float64, 2.0)),
        tuple(FreshOutput(torch.float32, (4,), (1,)) for _ in range(3)),
    )
    values = [torch.randn(4) for _ in range(3)]
    lowered = lower(fx.GraphModule(torch.nn.Module(), graph), spec)
    got = execute(lowered, spec, [*values, torch.tensor(2.5, dtype=torch.float64)])
    torch.testing.assert_close(got, [value / 2.5 for value in values])
