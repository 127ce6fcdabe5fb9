"""The lowering's frame: roads, decompositions, interfaces, errors, random bits, control flow."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from tests.lowering.harness import call, check_ops, execute, run_op
from torchneuron.lowering import (
    FreshOutput,
    Lowered,
    LoweringError,
    ProgramSpec,
    ScalarInput,
    StorageOutput,
    StorageSpec,
    TensorInput,
    dynamic_args,
    lower,
    mlir,
    registry,
    road,
    torch_mlir_ops,
)
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitting import shape_of
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.lower import lower_to_text

aten = torch.ops.aten
F32 = torch.float32
LIBRARY = torch.library.Library("lowering_tests", "DEF")


def define(
    schema: str,
    reference: Callable[..., Any],
    register: Callable[[str], Callable[[Callable[..., Any]], Any]] | None = None,
    function: Callable[..., Any] | None = None,
) -> Any:
    """An op of the tests' own, also on meta tensors, with a road if one is given."""
    name = schema.split("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, reference, "CompositeExplicitAutograd")
    if register is not None and function is not None:
        register(f"lowering_tests.{name}")(function)
    return getattr(torch.ops.lowering_tests, name).default


def vector(storage: int = 0, size: int = 4) -> TensorInput:
    return TensorInput(storage, F32, (size,), (1,))


def one_op(op: Any, inputs: int = 1, **kwargs: Any) -> fx.GraphModule:
    graph = fx.Graph()
    nodes = tuple(graph.placeholder(f"x{i}") for i in range(inputs))
    graph.output((graph.call_function(op, nodes, kwargs),))
    return fx.GraphModule({}, graph)


def spec_of(*inputs: TensorInput | ScalarInput, output: Any = None) -> ProgramSpec:
    tensors = [item for item in inputs if isinstance(item, TensorInput)]
    storages = tuple(StorageSpec(item.dtype, item.numel) for item in tensors)
    return ProgramSpec(storages, inputs, (output or FreshOutput(F32, (4,), (1,)),))


# Roads


def test_road_of_each_kind() -> None:
    assert road(aten.add.Tensor) == "emitter"
    assert road(aten.linear.default) == "decomposition"
    assert road(aten._fused_sdp_choice.default) is None


def test_op_without_a_road_is_named() -> None:
    op = define("stray(Tensor x) -> Tensor", torch.clone)
    with pytest.raises(LoweringError, match=r"lowering_tests\.stray\.default") as caught:
        lower(one_op(op), spec_of(vector()))
    assert isinstance(caught.value, NotImplementedError)


def test_roads_tell_what_each_op_took() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return aten.mul.Tensor(x, 2)

    op = define("twice(Tensor x) -> Tensor", twice, registry.decomposition, twice)
    lowered = lower(one_op(op), spec_of(vector()))
    assert lowered.roads == {
        "lowering_tests.twice.default": "decomposition",
        "aten.mul.Tensor": "emitter",
    }
    run_op(op, torch.randn(4))


def test_an_op_is_registered_once() -> None:
    with pytest.raises(ValueError, match=r"aten\.add\.Tensor is registered twice"):
        registry.emitter("aten.add.Tensor")(lambda *_: None)


def test_numbers_that_may_be_operands() -> None:
    assert dynamic_args(aten.add.Tensor) == {"alpha"}
    assert dynamic_args(aten.addmm.default) == {"beta", "alpha"}
    assert dynamic_args(aten.pow.Tensor_Scalar) == frozenset()
    assert dynamic_args(aten.clamp.default) == {"min", "max"}
    assert dynamic_args(aten.linear.default) == frozenset()


def test_composite_op() -> None:
    run_op(aten.linear.default, torch.randn(2, 3), torch.randn(4, 3), torch.randn(4))


def test_stock_decomposition() -> None:
    run_op(aten.rot90.default, torch.randn(2, 3, 4), 1, [0, 2])


def test_mutating_decomposition() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        y[:, 1:] = x[:, 1:]
        y[0].mul_(3)
        return y

    op = define("mutating(Tensor x) -> Tensor", reference, registry.decomposition, reference)
    run_op(op, torch.randn(3, 4))


def test_decomposition_with_data_of_its_own() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        table = torch.tensor([1.0, 2.0, 4.0], device=x.device)
        return x * table + torch.arange(3, device=x.device)

    op = define("tabled(Tensor x) -> Tensor", reference, registry.decomposition, reference)
    run_op(op, torch.randn(2, 3))


def test_decomposition_with_a_number_operand() -> None:
    def reference(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * scale

    def scaled(x: torch.Tensor, scale: Any) -> torch.Tensor:
        assert isinstance(scale, torch.Tensor)
        return x * scale.to(x.dtype)

    register = lambda name: registry.decomposition(name, dynamic=("scale",))  # noqa: E731
    op = define("scaled(Tensor x, float scale) -> Tensor", reference, register, scaled)
    run_op(op, torch.randn(4), 2.5)


def test_decomposition_that_reads_a_value_is_refused() -> None:
    def reading(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x

    op = define("reading(Tensor x) -> Tensor", torch.clone, registry.decomposition, reading)
    with pytest.raises(LoweringError, match=r"lowering_tests\.reading\.default"):
        lower(one_op(op), spec_of(vector()))


def test_torch_mlir_inside_the_function() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return aten.hardtanh(x + 1, -0.5, 0.7) * 2

    def emit(b: Builder, out: Any, x: Val) -> Val:
        args = (b.add(x, 1.0), -0.5, 0.7)
        return b.mul(torch_mlir_ops.emit(b, aten.hardtanh.default, args, {}, out), 2.0)

    op = define("clipped(Tensor x) -> Tensor", reference, registry.emitter, emit)
    run_op(op, torch.randn(3, 4))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.uint8])
def test_torch_mlir_never_sees_what_it_aborts_on(dtype: torch.dtype) -> None:
    op = define(f"foreign_{dtype.itemsize}(Tensor x) -> Tensor", torch.clone)
    registry.torch_mlir(str(op))
    with pytest.raises(LoweringError, match="Torch-MLIR does not take"):
        lower(
            one_op(op),
            spec_of(TensorInput(0, dtype, (4,), (1,)), output=FreshOutput(dtype, (4,), (1,))),
        )


def test_emitter_that_gives_the_wrong_shape_is_an_error() -> None:
    def wrong(b: Builder, out: Any, x: Val) -> Val:
        return b.full((1,), 0, F32)

    op = define("wrong(Tensor x) -> Tensor", torch.clone, registry.emitter, wrong)
    with pytest.raises(LoweringError, match=r"not torch\.float32 of shape \(4,\)"):
        lower(one_op(op), spec_of(vector()))


def test_invalid_module_is_an_error() -> None:
    with pytest.raises(LoweringError, match="MLIR refuses the program"):
        mlir.build('func.func @main() -> tensor<f32> { "stablehlo.nonsense"() : () -> () }')


# Interfaces


def test_numbers_and_offsets_are_operands_of_one_program() -> None:
    graph = fx.Graph()
    x, alpha = graph.placeholder("x"), graph.placeholder("alpha")
    graph.output((graph.call_function(aten.add.Tensor, (x, x), {"alpha": alpha}),))
    spec = ProgramSpec(
        (StorageSpec(F32, 8),),
        (TensorInput(0, F32, (4,), (1,), True), ScalarInput(torch.float64, 1.0)),
        (FreshOutput(F32, (4,), (1,)),),
    )
    lowered = lower(fx.GraphModule({}, graph), spec)
    storage = torch.arange(8.0)
    for alpha_value, offset in ((0.5, 1), (2.0, 4)):
        operands = [storage, torch.tensor(alpha_value, dtype=torch.float64), torch.tensor(offset)]
        (got,) = execute(lowered, spec, operands)
        assert torch.equal(got, storage[offset : offset + 4] * (1 + alpha_value))


def test_number_does_not_promote() -> None:
    x = torch.randn(4).bfloat16()
    check_ops(
        [
            call(aten.add.Tensor, x, 0.1),
            call(aten.gt.Scalar, x, 0.1),
            call(aten.gt.Scalar, torch.arange(4), 1.5),
            call(aten.mul.Scalar, torch.arange(4), 2),
            call(aten.clamp.default, torch.arange(4), 0.5, 2.5),
        ]
    )


def test_output_in_any_dense_order() -> None:
    x = torch.randn(2, 3, 4)
    permuted = torch.empty(4, 2, 3).permute(1, 2, 0)
    spec = spec_of(
        TensorInput(0, F32, (2, 3, 4), (12, 4, 1)),
        output=FreshOutput(F32, (2, 3, 4), permuted.stride()),
    )
    (got,) = execute(lower(one_op(aten.neg.default), spec), spec, [x.view(-1)])
    assert torch.equal(got, (-x).permute(2, 0, 1).reshape(-1))


def test_in_place_result_aliases_its_storage() -> None:
    output = StorageOutput(0, vector())
    text = lower_to_text(one_op(aten.relu.default), spec_of(vector(), output=output)).text
    assert "%s0: tensor<4xf32> {tf.aliasing_output = 0 : i32}" in text


def large_matrices() -> tuple[tuple[int, int], list[TensorInput], tuple[StorageSpec, ...]]:
    sizes = (256, 96)
    matrix = TensorInput(0, F32, sizes, (96, 1))
    row = TensorInput(1, F32, (96,), (1,))
    return sizes, [matrix, row], tuple(StorageSpec(F32, item.numel) for item in (matrix, row))


def test_one_operator_on_large_storages_computes_on_shaped_values() -> None:
    sizes, inputs, storages = large_matrices()
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output((graph.call_function(aten.add.Tensor, (x, y)),))
    gm = fx.GraphModule({}, graph)
    flat = [torch.randn(item.numel) for item in inputs]
    expected = flat[0].view(sizes) + flat[1]
    for strides in ((96, 1), (1, 256)):
        spec = ProgramSpec(storages, tuple(inputs), (FreshOutput(F32, sizes, strides),))
        main, shaped = lower_to_text(gm, spec).text.split("func.func private @shaped")
        assert "stablehlo.add" in shaped
        assert "tensor<24576xf32>" in main
        assert "tensor<24576xf32>" not in shaped.partition("{")[0]
        (got,) = execute(lower(gm, spec), spec, flat)
        torch.testing.assert_close(got, (expected if strides[1] == 1 else expected.t()).reshape(-1))
    in_place = ProgramSpec(storages, tuple(inputs), (StorageOutput(0, inputs[0]),))
    assert "@shaped" not in lower_to_text(gm, in_place).text


def test_several_results_of_one_operator_on_large_storages() -> None:
    sizes, inputs, storages = large_matrices()
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    pair = graph.call_function(aten.max.dim, (x, 1))
    values, indices = (graph.call_function(operator.getitem, (pair, i)) for i in range(2))
    graph.output((values, indices, y))
    outputs = (
        FreshOutput(F32, (256,), (1,)),
        FreshOutput(torch.int64, (256,), (1,)),
        FreshOutput(F32, (96,), (1,)),
    )
    spec = ProgramSpec(storages, tuple(inputs), outputs)
    gm = fx.GraphModule({}, graph)
    assert "@shaped" in lower_to_text(gm, spec).text
    flat = [torch.randn(item.numel) for item in inputs]
    got = execute(lower(gm, spec), spec, flat)
    expected = flat[0].view(sizes).max(1)
    assert torch.equal(got[0], expected.values)
    assert torch.equal(got[1], expected.indices)
    assert torch.equal(got[2], flat[1])


def test_programs_of_several_operators_stay_in_one_function() -> None:
    sizes, inputs, storages = large_matrices()
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    total = graph.call_function(aten.add.Tensor, (x, y))
    graph.output((graph.call_function(aten.mul.Tensor, (total, y)),))
    spec = ProgramSpec(storages, tuple(inputs), (FreshOutput(F32, sizes, (96, 1)),))
    text = lower_to_text(fx.GraphModule({}, graph), spec)
    assert "@shaped" not in text.text
    assert not text.small


@pytest.mark.parametrize(
    ("sizes", "strides", "dim", "rows"),
    [
        ((256, 96), (96, 1), 1, True),
        ((256, 96), (96, 1), 0, False),
        ((256, 96), (1, 256), 1, False),  # the transposed value's rows are columns in memory
        ((16, 16), (16, 1), 0, True),  # small
        ((1, 24576), (24576, 1), 0, True),
    ],
)
def test_reductions_across_memory_are_told(
    sizes: tuple[int, int], strides: tuple[int, int], dim: int, rows: bool
) -> None:
    graph = fx.Graph()
    graph.output((graph.call_function(aten.amax.default, (graph.placeholder("x"), [dim])),))
    matrix = TensorInput(0, F32, sizes, strides)
    output = FreshOutput(F32, (sizes[1 - dim],), (1,))
    spec = ProgramSpec((StorageSpec(F32, matrix.numel),), (matrix,), (output,))
    assert lower(fx.GraphModule({}, graph), spec).reduces_rows is rows


def test_column_sums_of_floats_and_products_of_transposed_values_run_along_memory() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    sums = graph.call_function(aten.sum.dim_IntList, (x, [0]))
    product = graph.call_function(aten.mm.default, (graph.call_function(aten.t.default, (x,)), x))
    largest = graph.call_function(aten.amax.default, (product, [1]))
    graph.output((sums, largest))
    matrix = TensorInput(0, F32, (256, 96), (96, 1))
    outputs = (FreshOutput(F32, (96,), (1,)), FreshOutput(F32, (96,), (1,)))
    spec = ProgramSpec((StorageSpec(F32, matrix.numel),), (matrix,), outputs)
    assert lower(fx.GraphModule({}, graph), spec).reduces_rows


def test_multiple_results_and_constants() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    table = graph.get_attr("table")
    values = graph.call_function(
        aten.max.dim, (graph.call_function(aten.add.Tensor, (x, table)), 0)
    )
    graph.output(
        tuple(
            graph.call_function(
                aten.neg.default, (graph.call_function(operator.getitem, (values, i)),)
            )
            for i in (0, 1)
        )
    )
    gm = fx.GraphModule({"table": torch.tensor([1.0, 5.0, 2.0, 0.0])}, graph)
    outputs = (FreshOutput(F32, (), ()), FreshOutput(torch.int64, (), ()))
    spec = ProgramSpec((StorageSpec(F32, 4),), (vector(),), outputs)
    value, index = execute(lower(gm, spec), spec, [torch.zeros(4)])
    assert value.item() == -5
    assert index.item() == -1


def test_empty_and_scalar_tensors() -> None:
    empty, scalar = torch.empty(0, 3), torch.tensor(2.0)
    check_ops(
        [
            call(aten.add.Tensor, empty, scalar),
            call(aten.mul.Tensor, scalar, scalar),
            call(aten.sum.dim_IntList, empty, [0]),
            call(aten.mm.default, empty, torch.randn(3, 2)),
            call(aten.cat.default, [empty, torch.randn(2, 3)]),
            call(aten.sum.default, scalar),
            call(aten.argmax.default, scalar),
        ]
    )


# Random bits


def random_op(schema: str, *draws: tuple[tuple[int, ...], int]) -> Any:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(
            sum(torch.Size(shape).numel() for shape, _ in draws), device=x.device
        ).long()

    def emit(b: Builder, out: Any, x: Val) -> Val:
        bits = [b.random_bits(shape, width) for shape, width in draws]
        flat = [b.reshape(b.convert(value, torch.int64), (value.numel,)) for value in bits]
        return b.reshape(b.concat(flat, 0), shape_of(out))

    return define(schema, reference, registry.emitter, emit)


def draw(op: Any, count: int, seed: int, offset: int) -> tuple[Lowered, torch.Tensor]:
    spec = spec_of(vector(), output=FreshOutput(torch.int64, (count,), (1,)))
    lowered = lower(one_op(op), spec)
    (got,) = execute(lowered, spec, [torch.zeros(4)], seed, offset)
    return lowered, got


def test_random_bits_follow_seed_and_offset() -> None:
    op = random_op("bits(Tensor x) -> Tensor", ((5,), 32))
    lowered, first = draw(op, 5, 7, 0)
    assert lowered.rng_offset == 8
    assert torch.equal(first, draw(op, 5, 7, 0)[1])
    assert not torch.equal(first, draw(op, 5, 8, 0)[1])
    assert not torch.equal(first, draw(op, 5, 7, 8)[1])
    assert first.unique().numel() == 5
    assert first.min() >= 0
    assert first.max() < 2**32


def test_each_draw_is_fresh_and_equals_the_later_program_s() -> None:
    pair = random_op("pair(Tensor x) -> Tensor", ((4,), 32), ((3,), 64))
    single = random_op("single(Tensor x) -> Tensor", ((3,), 64))
    lowered, both = draw(pair, 7, 3, 16)
    assert lowered.rng_offset == 12
    assert torch.equal(both[4:], draw(single, 3, 3, 20)[1])


def test_program_without_random_numbers_takes_no_rng_operand() -> None:
    assert lower(one_op(aten.relu.default), spec_of(vector())).rng_offset == 0


# Control flow


def test_loops_and_branches() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        for i in range(5):
            x = x * 2 + i
        return x + 1 if float(x.sum()) > 0 else x - 1

    def emit(b: Builder, out: Any, x: Val) -> Val:
        (looped,) = b.for_(
            5, [x], lambda i, v: [b.add(b.mul(v, 2), b.broadcast_to(b.convert(i, F32), v.shape))]
        )
        (chosen,) = b.if_(
            b.gt(b.reduce_sum(looped), 0),
            lambda: [b.add(looped, 1)],
            lambda: [b.sub(looped, 1)],
            [(F32, looped.shape)],
        )
        return chosen

    LIBRARY.define("flow(Tensor x) -> Tensor")
    LIBRARY.impl("flow", reference, "CPU")
    LIBRARY.impl("flow", torch.empty_like, "Meta")
    registry.emitter("lowering_tests.flow")(emit)
    for sign in (1, -1):
        run_op(torch.ops.lowering_tests.flow.default, sign * torch.rand(4) * 50)


def test_rollback_forgets_a_failed_attempt() -> None:
    b = Builder()
    interpreter = Interpreter(b)
    mark = b.mark()
    b.add(b.full((2,), 1, F32), 2)
    b.rollback(mark)
    assert b.body_text() == ""
    assert interpreter.roads == {}
    assert b.full((2,), 1, F32).ir in b.body_text()
