"""Reading and writing of flat storages through views, against torch.as_strided on the CPU."""

import itertools
import random
from dataclasses import dataclass

import pytest
import torch
from torch import fx

from tests.lowering.harness import execute
from torchneuron.lowering import (
    FreshOutput,
    ProgramSpec,
    StorageOutput,
    StorageSpec,
    TensorInput,
    lower,
)
from torchneuron.lowering.lower import lower_to_text


@dataclass
class View:
    """A view of a storage that has `numel` elements of `storage_dtype`."""

    numel: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    dtype: torch.dtype = torch.float32
    storage_dtype: torch.dtype = torch.float32

    def storage(self) -> torch.Tensor:
        data = torch.randint(-100, 100, (self.numel,))
        return data > 0 if self.storage_dtype is torch.bool else data.to(self.storage_dtype)

    def of(self, storage: torch.Tensor) -> torch.Tensor:
        empty = torch.empty(0, dtype=self.dtype)
        return empty.set_(storage.untyped_storage(), self.offset, self.sizes, self.strides)

    def spec(self) -> TensorInput:
        return TensorInput(0, self.dtype, self.sizes, self.strides, self.offset != 0)

    def operands(self, storage: torch.Tensor) -> list[torch.Tensor]:
        return [storage, torch.tensor(self.offset)] if self.offset else [storage]


def dense_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(torch.empty(sizes, device="meta").stride())


def same_bytes(got: torch.Tensor, expected: torch.Tensor) -> bool:
    left, right = got.reshape(-1), expected.clone(memory_format=torch.contiguous_format).view(-1)
    return left.dtype is right.dtype and torch.equal(
        left.view(torch.uint8), right.view(torch.uint8)
    )


def check_reads(views: list[View]) -> None:
    """All views' contents, in one program."""
    graph, storages, inputs, outputs, operands, offsets, wanted = fx.Graph(), [], [], [], [], [], []
    for index, view in enumerate(views):
        storage = view.storage()
        storages.append(StorageSpec(view.storage_dtype, view.numel))
        spec = view.spec()
        inputs.append(TensorInput(index, spec.dtype, spec.sizes, spec.strides, spec.dynamic_offset))
        outputs.append(FreshOutput(view.dtype, view.sizes, dense_strides(view.sizes)))
        operands.append(storage)
        offsets += view.operands(storage)[1:]
        wanted.append(view.of(storage))
    graph.output(tuple(graph.placeholder(f"x{i}") for i in range(len(views))))
    program = ProgramSpec(tuple(storages), tuple(inputs), tuple(outputs))
    results = execute(lower(fx.GraphModule({}, graph), program), program, operands + offsets)
    for view, got, expected in zip(views, results, wanted, strict=True):
        assert same_bytes(got, expected), view


def check_write(view: View) -> None:
    """An assignment to the view, and the storage it leaves."""
    storage = view.storage()
    value = view.of(view.storage()).clone()
    expected = storage.clone()
    for index in itertools.product(*map(range, view.sizes)):
        view.of(expected)[index] = value[index]
    graph = fx.Graph()
    graph.placeholder("target")
    graph.output((graph.placeholder("value"),))
    spec = view.spec()
    program = ProgramSpec(
        (StorageSpec(view.storage_dtype, view.numel), StorageSpec(view.dtype, value.numel())),
        (spec, TensorInput(1, view.dtype, view.sizes, dense_strides(view.sizes))),
        (StorageOutput(0, spec),),
    )
    operands = [storage, value.reshape(-1), *view.operands(storage)[1:]]
    (got,) = execute(lower(fx.GraphModule({}, graph), program), program, operands)
    assert same_bytes(got, expected), view


F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64
VIEWS = {
    "whole": View(24, (4, 6), (6, 1)),
    "scalar": View(1, (), ()),
    "scalar at an offset": View(9, (), (), 4),
    "empty": View(6, (0, 3), (3, 1)),
    "of an empty storage": View(0, (2, 0), (1, 1)),
    "transposed": View(24, (6, 4), (1, 6)),
    "permuted": View(24, (2, 4, 3), (3, 6, 1)),
    "size-1 dimensions with odd strides": View(24, (1, 4, 1, 6), (99, 6, 7, 1)),
    "start of a storage": View(24, (3, 6), (6, 1)),
    "rows at an offset": View(24, (2, 6), (6, 1), 6),
    "columns": View(24, (4, 3), (6, 1)),
    "columns at an offset": View(24, (4, 3), (6, 1), 2),
    "last column": View(24, (4,), (6,), 5),
    "every other element": View(24, (4, 3), (6, 2), 1),
    "every other row": View(24, (2, 6), (12, 1)),
    "block of a 3-d tensor, transposed": View(60, (2, 2, 3), (5, 20, 1), 6),
    "strides that nest but do not divide": View(40, (3, 2), (7, 2), 3),
    "diagonal": View(25, (5,), (6,)),
    "expanded": View(6, (3, 2, 6), (0, 0, 1)),
    "expanded inside": View(12, (2, 5, 3), (6, 0, 2), 1),
    "sliding windows": View(14, (5, 4), (2, 1), 1),
    "overlap of odd strides": View(30, (4, 5), (3, 2)),
    "bf16 as int16": View(24, (4, 6), (6, 1), 0, torch.int16, BF16),
    "f64 as int32, odd offset": View(10, (3, 4), (5, 1), 3, torch.int32, F64),
    "int16 as f32": View(24, (2, 3), (5, 1), 1, F32, torch.int16),
    "odd number of bytes as int32": View(11, (2,), (1,), 0, torch.int32, torch.uint8),
    "bool as uint8": View(24, (4, 3), (6, 1), 1, torch.uint8, torch.bool),
    "complex as f32": View(12, (4, 3), (6, 2), 1, F32, torch.complex64),
    "f32 as complex": View(24, (2, 3), (5, 1), 1, torch.complex64, F32),
    "complex at an offset": View(12, (2, 3), (5, 1), 1, torch.complex64, torch.complex64),
}


def test_reads() -> None:
    check_reads(list(VIEWS.values()))


@pytest.mark.parametrize("name", VIEWS)
def test_write(name: str) -> None:
    check_write(VIEWS[name])


def test_bool_over_bytes() -> None:
    storage = torch.tensor([0, 1, 1, 0, 1], dtype=torch.uint8)
    view = View(5, (3,), (1,), 1, torch.bool, torch.uint8)
    graph = fx.Graph()
    graph.output((graph.placeholder("x"),))
    program = ProgramSpec(
        (StorageSpec(torch.uint8, 5),), (view.spec(),), (FreshOutput(torch.bool, (3,), (1,)),)
    )
    (got,) = execute(lower(fx.GraphModule({}, graph), program), program, view.operands(storage))
    assert got.tolist() == [True, True, False]


def random_view(rng: random.Random) -> View:
    """Slices, permutes, drops and expands dimensions of a dense tensor, now and then strides at
    random.
    """
    if rng.random() < 0.2:
        sizes = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 3)))
        strides = tuple(rng.randint(0, 6) for _ in sizes)
        offset = rng.randint(0, 5)
        numel = (
            offset
            + 1
            + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
            + rng.randint(0, 3)
        )
        return View(numel, sizes, strides, offset)
    base = torch.empty([rng.randint(1, 5) for _ in range(rng.randint(1, 4))])
    view = base
    for dim in range(view.dim()):
        if rng.random() < 0.6:
            start = rng.randint(0, view.shape[dim] - 1)
            view = view[(slice(None),) * dim + (slice(start, None, rng.randint(1, 3)),)]
    view = view.permute(rng.sample(range(view.dim()), view.dim()))
    if rng.random() < 0.3:
        view = view.select(rng.randrange(view.dim()), 0)
    if rng.random() < 0.3:
        view = view.unsqueeze(0).expand(2, *view.shape)
    return View(base.numel(), tuple(view.shape), tuple(view.stride()), view.storage_offset())


def test_random_reads() -> None:
    rng = random.Random(1)
    check_reads([random_view(rng) for _ in range(200)])


@pytest.mark.parametrize("seed", range(20))
def test_random_writes(seed: int) -> None:
    check_write(random_view(random.Random(100 + seed)))


def text_of_write(view: View) -> str:
    graph = fx.Graph()
    graph.placeholder("target")
    graph.output((graph.placeholder("value"),))
    spec = view.spec()
    numel = spec.numel
    program = ProgramSpec(
        (StorageSpec(view.storage_dtype, view.numel), StorageSpec(view.dtype, numel)),
        (spec, TensorInput(1, view.dtype, view.sizes, dense_strides(view.sizes))),
        (StorageOutput(0, spec),),
    )
    return lower_to_text(fx.GraphModule({}, graph), program).text


def test_write_at_a_moving_position_touches_only_its_runs() -> None:
    few = text_of_write(View(2 * 4 * 64 * 8, (2, 4, 1, 8), (2048, 512, 8, 1), 16))
    many = text_of_write(View(32 * 64 * 80, (32, 1, 8), (64 * 80, 8, 1), 16))
    assert few.count("dynamic_update_slice") == 8
    assert "while" in many
    for text in (few, many):
        assert "scatter" not in text
        assert "stablehlo.pad" not in text


def test_storage_written_twice_holds_both() -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output((y, x))
    first, second = TensorInput(0, F32, (3,), (1,)), TensorInput(0, F32, (3,), (1,), True)
    program = ProgramSpec(
        (StorageSpec(F32, 6),), (first, second), (StorageOutput(0, first), StorageOutput(0, second))
    )
    storage = torch.arange(6.0)
    results = execute(
        lower(fx.GraphModule({}, graph), program), program, [storage, torch.tensor(3)]
    )
    for got in results:
        assert got.tolist() == [3, 4, 5, 0, 1, 2]
