"""Runs single ops through the lowering on XLA:CPU and compares them with PyTorch on the CPU.

`run_op(torch.ops.aten.add.Tensor, x, y, alpha=2)` is the whole interface for most tests;
`check_ops` takes many calls and puts them into one program, which compiles far faster than one
program each.
"""

import importlib.util
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torchneuron._C import pjrt
from torchneuron.lowering import (
    FreshOutput,
    Lowered,
    ProgramSpec,
    ScalarInput,
    ScalarListInput,
    StorageSpec,
    TensorInput,
    dynamic_args,
    lower,
)

PJRT_TYPES = {
    torch.bool: 1,
    torch.int8: 2,
    torch.int16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.uint8: 6,
    torch.uint16: 7,
    torch.uint32: 8,
    torch.uint64: 9,
    torch.float16: 10,
    torch.float32: 11,
    torch.float64: 12,
    torch.bfloat16: 13,
    torch.complex64: 14,
    torch.complex128: 15,
    torch.float8_e5m2: 16,
    torch.float8_e4m3fn: 17,
    torch.float8_e5m2fnuz: 19,
    torch.float8_e4m3fnuz: 20,
    torch.float8_e8m0fnu: 28,
}

# Tests compile thousands of small programs and run each once.
FAST_COMPILE = {
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": "true",
    # What every program of ours is compiled with: NaNs propagate, each op rounds.
    "xla_cpu_enable_fast_min_max": "false",
    "xla_allow_excess_precision": "false",
}

NUMBER_DTYPES = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}


@dataclass
class Call:
    """One op with its arguments; `tolerances` go to assert_close."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    tolerances: dict[str, Any] = field(default_factory=dict)


def call(op: Any, *args: Any, **kwargs: Any) -> Call:
    return Call(op, args, kwargs)


@cache
def client() -> Any:
    package = importlib.util.find_spec("xla_plugins.xla_cpu_pjrt")
    assert package is not None
    assert package.origin is not None
    library = next(Path(package.origin).parent.glob("*.so"))
    return pjrt.Client(str(library))


def flat_storage(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of a tensor as a 1-D tensor of its dtype."""
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.itemsize
    return torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (count,), (1,))


def to_buffer(tensor: torch.Tensor) -> Any:
    dense = tensor.detach().contiguous().resolve_conj().resolve_neg()
    return client().buffer(
        dense.data_ptr(), dense.nbytes, PJRT_TYPES[dense.dtype], list(dense.shape)
    )


def from_buffer(buffer: Any, dtype: torch.dtype) -> torch.Tensor:
    data = buffer.to_bytes()
    return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)


def execute(
    lowered: Lowered,
    spec: ProgramSpec,
    operands: Sequence[torch.Tensor],
    seed: int = 0,
    offset: int = 0,
) -> list[torch.Tensor]:
    """Compile and run a program on flat storages, numbers and offsets; gives flat tensors."""
    arguments = list(operands)
    if lowered.rng_offset:
        arguments.append(torch.tensor([seed, offset], dtype=torch.int64).view(torch.uint64))
    program = client().compile(lowered.module, 0, FAST_COMPILE)
    outputs = program.execute([to_buffer(argument) for argument in arguments])
    dtypes = [
        out.dtype if isinstance(out, FreshOutput) else spec.storages[out.storage].dtype
        for out in spec.outputs
    ]
    return [from_buffer(buffer, dtype) for buffer, dtype in zip(outputs, dtypes, strict=True)]


class _Program:
    """Builds the graph, the specification and the operands of a list of calls."""

    def __init__(self, static_numbers: bool):
        self.static_numbers = static_numbers
        self.graph = fx.Graph()
        self.storages: list[torch.Tensor] = []
        self.storage_index: dict[int, int] = {}
        self.inputs: list[TensorInput | ScalarInput | ScalarListInput] = []
        self.numbers: list[torch.Tensor] = []
        self.offsets: list[torch.Tensor] = []
        self.outputs: list[FreshOutput] = []
        self.results: list[Any] = []

    def tensor(self, tensor: torch.Tensor) -> fx.Node:
        key = tensor.untyped_storage()._cdata
        if key not in self.storage_index:
            self.storage_index[key] = len(self.storages)
            self.storages.append(flat_storage(tensor))
        index = self.storage_index[key]
        whole = tensor.storage_offset() == 0
        if not whole:
            self.offsets.append(torch.tensor(tensor.storage_offset()))
        self.inputs.append(
            TensorInput(index, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), not whole)
        )
        return self.graph.placeholder(f"input{len(self.inputs)}")

    def number(self, value: bool | int | float | complex) -> fx.Node:
        dtype = NUMBER_DTYPES[type(value)]
        self.inputs.append(ScalarInput(dtype, value))
        self.numbers.append(torch.tensor(value, dtype=dtype))
        return self.graph.placeholder(f"input{len(self.inputs)}")

    def number_list(self, values: Sequence[bool | int | float | complex]) -> fx.Node:
        dtype = NUMBER_DTYPES[type(values[0])]
        self.inputs.append(ScalarListInput(dtype, len(values), tuple(values)))
        self.numbers.append(torch.tensor(values, dtype=dtype))
        return self.graph.placeholder(f"input{len(self.inputs)}")

    def argument(self, argument: Any, may_be_operand: bool) -> Any:
        operands = may_be_operand and not self.static_numbers
        kinds = {type(item) for item in argument} if isinstance(argument, (list, tuple)) else set()
        if operands and len(kinds) == 1 and kinds <= NUMBER_DTYPES.keys():
            return self.number_list(argument)
        return pytree.tree_map(lambda leaf: self.leaf(leaf, operands), argument)

    def leaf(self, leaf: Any, may_be_operand: bool) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.tensor(leaf)
        return self.number(leaf) if may_be_operand and type(leaf) in NUMBER_DTYPES else leaf

    def prepare(self, call: Call) -> tuple[Any, Any]:
        names = [argument.name for argument in call.op._schema.arguments]
        dynamic = dynamic_args(call.op)
        args = [
            self.argument(arg, name in dynamic) for name, arg in zip(names, call.args, strict=False)
        ]
        kwargs = {name: self.argument(arg, name in dynamic) for name, arg in call.kwargs.items()}
        return tuple(args), kwargs

    def add(self, call: Call, prepared: tuple[Any, Any], expected: Any) -> None:
        node = self.graph.call_function(call.op, *prepared)
        self._output(node, expected)

    def _output(self, node: fx.Node, expected: Any) -> None:
        if isinstance(expected, torch.Tensor):
            strides = (
                expected.stride()
                if _is_dense(expected)
                else torch.empty(expected.shape, device="meta").stride()
            )
            self.outputs.append(FreshOutput(expected.dtype, tuple(expected.shape), tuple(strides)))
            self.results.append(node)
        elif isinstance(expected, (tuple, list)):
            for index, one in enumerate(expected):
                if one is not None:
                    self._output(self.graph.call_function(operator.getitem, (node, index)), one)

    def finish(self) -> tuple[fx.GraphModule, ProgramSpec]:
        self.graph.output(tuple(self.results))
        storages = tuple(StorageSpec(storage.dtype, storage.numel()) for storage in self.storages)
        spec = ProgramSpec(storages, tuple(self.inputs), tuple(self.outputs))
        return fx.GraphModule(torch.nn.Module(), self.graph), spec

    def operands(self) -> list[torch.Tensor]:
        return [*self.storages, *self.numbers, *self.offsets]


def _is_dense(tensor: torch.Tensor) -> bool:
    return torch.ops.aten.is_non_overlapping_and_dense(tensor)


def _run(
    calls: Sequence[Call], expected: Sequence[Any], static_numbers: bool, seed: int
) -> list[Any]:
    program = _Program(static_numbers)
    prepared = [program.prepare(call) for call in calls]
    for call_, arguments, value in zip(calls, prepared, expected, strict=True):
        program.add(call_, arguments, value)
    gm, spec = program.finish()
    flat = iter(execute(lower(gm, spec), spec, program.operands(), seed))
    outputs = iter(spec.outputs)

    def dense(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        out = next(outputs)
        return torch.as_strided(next(flat), out.sizes, out.strides)

    return [pytree.tree_map(dense, value) for value in expected]


def run_op(
    op: Any,
    *args: Any,
    static_numbers: bool = False,
    expected: Any = None,
    compare: bool = True,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    **kwargs: Any,
) -> Any:
    """The op's result computed on XLA:CPU, compared with the CPU's (or `expected`) unless `compare`
    is False.

    Numbers that the op takes as operands are passed so, unless `static_numbers`. Arguments may be
    any views.
    """
    with torch.no_grad():
        reference = op(*args, **kwargs) if expected is None else expected
    result = _run([Call(op, args, kwargs)], [reference], static_numbers, seed)[0]
    if compare:
        _compare(result, reference, {"rtol": rtol, "atol": atol})
    return result


def check_ops(calls: Sequence[Call], static_numbers: bool = False) -> None:
    """Compare many calls with the CPU, all in one program; the error names those that differ."""
    with torch.no_grad():
        references = [call.op(*call.args, **call.kwargs) for call in calls]
    results = _run(calls, references, static_numbers, 0)
    failures = []
    for call_, result, reference in zip(calls, results, references, strict=True):
        try:
            _compare(result, reference, call_.tolerances)
        except AssertionError as error:
            failures.append(f"{describe(call_)}\n{error}")
    assert not failures, f"{len(failures)} of {len(calls)} calls differ\n\n" + "\n\n".join(failures)


def describe(call: Call) -> str:
    def short(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
        return leaf

    args, kwargs = pytree.tree_map(short, (call.args, call.kwargs))
    return f"{call.op}({', '.join(map(str, args))}{', ' if kwargs else ''}{kwargs or ''})"


def _compare(result: Any, reference: Any, tolerances: dict[str, Any]) -> None:
    for got, wanted in zip(pytree.tree_leaves(result), pytree.tree_leaves(reference), strict=True):
        if isinstance(wanted, torch.Tensor):
            wanted = wanted.resolve_conj().resolve_neg()
            torch.testing.assert_close(
                got, wanted, equal_nan=True, check_stride=False, **tolerances
            )


def lowers(function: Callable[[], Any]) -> bool:
    """Whether `function` runs without a LoweringError."""
    from torchneuron.lowering import LoweringError

    try:
        function()
    except LoweringError:
        return False
    return True
