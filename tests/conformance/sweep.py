"""Runs PyTorch's samples of an op on the device and on the CPU, and says what became of them.

A row for each op, dtype and aspect; whether anything fell back comes from the backend's own counters.
"""

import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch.autograd import forward_ad as forward_mode
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
    op_db,
)
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

from tests.conformance import statistics
from tests.conformance.compare import UNWRITTEN, Case, apply, compare, draws, judge, to_device
from tests.conformance.tolerances import tolerance_of

# Arguments that PyTorch wants on the CPU, whatever the device.
_HOST_ARGUMENTS = {"tensor_split": 0}
# What op_db's random ops set, where op_db can.
SEED = 42

Process = Callable[[Any], Any]
Function = Callable[..., Any]


class Aspect(StrEnum):
    """What of an op is run."""

    FORWARD = "forward"
    BACKWARD = "backward"
    FORWARD_AD = "forward-mode AD"
    IN_PLACE = "in-place"
    OUT = "out="
    NONCONTIGUOUS = "non-contiguous"
    ERRORS = "error inputs"


@dataclass
class Row:
    """What became of one op.

    ``status`` is "native", "fallback", "wrong", "error", or "no sample" if the CPU can run none.
    """

    op: str
    status: str
    samples: int
    reason: str = ""


def name_of(op: OpInfo) -> str:
    """The op's name in op_db, unique with its variant."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


@cache
def ops() -> dict[str, OpInfo]:
    """All of op_db by name."""
    return {name_of(op): op for op in op_db}


@cache
def foreach_ops() -> dict[str, OpInfo]:
    """The databases of operators on lists of tensors, by name."""
    found = (
        *foreach_unary_op_db,
        *foreach_binary_op_db,
        *foreach_pointwise_op_db,
        *foreach_reduce_op_db,
        *foreach_other_op_db,
    )
    return {name_of(op): op for op in found}


def differentiable(op: OpInfo, dtype: torch.dtype) -> bool:
    """Whether the op has gradients of this dtype."""
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def widest(op: OpInfo, dtype: torch.dtype) -> Aspect:
    """The backward, which has the forward in it, where the op has one."""
    return Aspect.BACKWARD if differentiable(op, dtype) else Aspect.FORWARD


def aspects(op: OpInfo, dtype: torch.dtype) -> list[Aspect]:
    """What there is to run of an op with inputs of this dtype."""
    is_foreach = op.name.startswith("_foreach")
    has = {
        Aspect.FORWARD: True,
        Aspect.BACKWARD: differentiable(op, dtype),
        Aspect.FORWARD_AD: op.supports_forward_ad and differentiable(op, dtype),
        Aspect.IN_PLACE: op.get_inplace() is not None,
        # Of the databases of lists, the flag says something else.
        Aspect.OUT: op.supports_out and not is_foreach,
        Aspect.NONCONTIGUOUS: not is_foreach
        and not _is_skipped(op, "test_noncontiguous_samples", dtype),
    }
    return [aspect for aspect, there_is in has.items() if there_is]


def _is_skipped(op: OpInfo, test: str, dtype: torch.dtype) -> bool:
    """Whether PyTorch's database says that a test asks too much of the op, whatever the device."""
    return any(
        decorator is unittest.expectedFailure
        or getattr(decorator, "__qualname__", "") == "skip.<locals>.decorator"
        for decorator in op.get_decorators("TestCommon", test, "", dtype, {})
    )


# ---- what to run


def gradients(outputs: Any, inputs: Any) -> list[Any]:
    """Gradients of the outputs' sums by the inputs that ask for them."""
    leaves = [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    results = [t for t in tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not leaves or not results:
        return []
    ones = [torch.ones_like(result) for result in results]
    return list(torch.autograd.grad(results, leaves, ones, allow_unused=True))


def forward(op: Function, process: Process) -> Function:
    """The op itself."""
    return lambda *args, **kwargs: process(op(*args, **kwargs))


def forward_and_backward(op: Function, process: Process) -> Function:
    """The op's results and their gradients."""

    def run(*args: Any, **kwargs: Any) -> Any:
        results = process(op(*args, **kwargs))
        return results, gradients(results, (args, kwargs))

    return run


def forward_ad(op: Function, process: Process) -> Function:
    """The op's results and their tangents, each for an input's tangent that is not constant."""

    def dual(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or not item.requires_grad:
            return item
        tangent = torch.linspace(0.5, 1.5, item.numel()).reshape(item.shape)
        return forward_mode.make_dual(item.detach(), tangent.to(item.device, item.dtype, copy=True))

    def parts(item: Any) -> Any:
        return tuple(forward_mode.unpack_dual(item)) if isinstance(item, torch.Tensor) else item

    def run(*args: Any, **kwargs: Any) -> Any:
        with forward_mode.dual_level():
            args, kwargs = tree_map(dual, (args, kwargs))
            return tree_map(parts, process(op(*args, **kwargs)))

    return run


def in_place(op: OpInfo) -> Function:
    """The op's in-place variant, on copies that are not all of their storages."""

    def room(item: torch.Tensor) -> torch.Tensor:
        around = torch.zeros((3, *item.shape), dtype=item.dtype, device=item.device)
        around[1].copy_(item)
        return around

    def run(input: Any, *args: Any, **kwargs: Any) -> Any:
        rooms = tree_map(room, input)
        result = op.get_inplace()(tree_map(lambda around: around[1], rooms), *args, **kwargs)
        return result, rooms

    return run


def with_out(op: OpInfo) -> Function:
    """The op with ``out=`` tensors: empty ones, and ones that are not dense.

    On the CPU only its results, or what it leaves in ``out=`` tensors that it gives another shape (ihfft2): some
    of its kernels (gelu) write past the strides.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        results = op(*args, **kwargs)
        tensors = [results] if isinstance(results, torch.Tensor) else list(results)
        empty = [torch.empty(0, dtype=t.dtype, device=t.device) for t in tensors]
        strided = [
            torch.zeros((*t.shape, 2), dtype=t.dtype, device=t.device)[..., 1] for t in tensors
        ]
        for outs in (empty, strided):
            op(*args, **kwargs, out=outs[0] if isinstance(results, torch.Tensor) else tuple(outs))
        if not tensors[0].is_cpu:
            return empty, strided
        as_given = all(out.shape == t.shape for out, t in zip(empty, tensors, strict=True))
        return (tensors, tensors) if as_given else (empty, strided)

    return run


def function_of(op: OpInfo, aspect: Aspect, process: Process) -> Function:
    """A function of a sample's inputs that shows an aspect of the op."""
    match aspect:
        case Aspect.BACKWARD:
            return forward_and_backward(op, process)
        case Aspect.FORWARD_AD:
            return forward_ad(op, process)
        case Aspect.IN_PLACE:
            return in_place(op)
        case Aspect.OUT:
            return with_out(op)
        case _:
            return forward(op, process)


def cases(op: OpInfo, dtype: torch.dtype, limit: int, aspect: Aspect) -> Iterator[Case]:
    """The first ``limit`` samples that the CPU can run; all of them if it is 0."""
    return islice(_cases(op, dtype, aspect), limit or None)


def _cases(op: OpInfo, dtype: torch.dtype, aspect: Aspect) -> Iterator[Case]:
    grad = aspect in (Aspect.BACKWARD, Aspect.FORWARD_AD) and differentiable(op, dtype)
    tolerance = tolerance_of(op, dtype)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=grad):
        case = _case(op, sample, aspect)
        if case is not None:
            case.tolerance = tolerance
            yield case


def _case(op: OpInfo, sample: SampleInput, aspect: Aspect) -> Case | None:
    """The sample with what it gives on the CPU; None if the CPU cannot run it."""
    if aspect is Aspect.IN_PLACE and sample.broadcasts_input:
        return None
    process = sample.output_process_fn_grad
    function = function_of(op, aspect, process)
    inputs = (sample.input, sample.args, sample.kwargs)
    try:
        after = to_device(inputs, "cpu")
        expected = apply(function, after)
        random = draws(op.name, function, inputs)
    except Exception:
        return None
    return Case(
        name_of(op),
        function,
        inputs,
        expected,
        after,
        random,
        process,
        noncontiguous=aspect is Aspect.NONCONTIGUOUS,
    )


# ---- on the device


def on_device(case: Case) -> tuple[Any, Any]:
    """What the case gives on the device, and the inputs after it."""
    first, args, kwargs = to_device(case.inputs, "neuron")
    if case.noncontiguous:
        first, args, kwargs = tree_map(_spread, (first, args, kwargs))
    if case.op in _HOST_ARGUMENTS:
        position = _HOST_ARGUMENTS[case.op]
        args = (*args[:position], case.inputs[1][position], *args[position + 1 :])
    result = apply(case.function, (first, args, kwargs))
    torch.neuron.synchronize()
    return result, (first, args, kwargs)


def _spread(item: Any) -> Any:
    return noncontiguous_like(item) if isinstance(item, torch.Tensor) else item


def fallbacks() -> Counter[str]:
    """Calls that went to the CPU, by op."""
    return Counter(torch.neuron.metrics()["fallbacks"])


def run_op(op: OpInfo, dtype: torch.dtype, limit: int, aspect: Aspect = Aspect.FORWARD) -> Row:
    """Run ``limit`` samples of an op (0 for all) on the device and compare them with the CPU."""
    row = run_cases(name_of(op), cases(op, dtype, limit, aspect))
    checked = aspect is Aspect.FORWARD and row.status in ("native", "fallback")
    if checked and (wrong := statistics.problem(row.op, dtype)):
        return Row(row.op, "wrong", row.samples, wrong)
    return row


def run_cases(name: str, found: Iterator[Case]) -> Row:
    """Run cases until one is not right."""
    before = fallbacks()
    count = 0
    for case in found:
        count += 1
        try:
            wrong = _run_case(case)
        except Exception as error:
            return Row(name, "error", count, f"{type(error).__name__}: {str(error)[:300]}")
        if wrong:
            return Row(name, "wrong", count, wrong[:300].replace("\n", " "))
    if not count:
        return Row(name, "no sample", 0)
    return _right(name, count, before)


def _run_case(case: Case) -> str:
    """Empty if the case is right on the device, else what is wrong."""
    torch.manual_seed(SEED)
    actual, after = on_device(case)
    wrong = judge(case, actual, after)
    if wrong or not case.random or UNWRITTEN.search(case.op):
        return wrong
    torch.manual_seed(SEED)
    again, _ = on_device(case)
    try:
        compare(again, _on_cpu(actual), tolerance=(0, 0))
    except AssertionError as error:
        return f"other numbers with the same seed: {error}"
    return ""


def _on_cpu(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf, value)


def run_error_inputs(op: OpInfo) -> Row:
    """Run the inputs that an op refuses: each must raise what PyTorch's database says.

    Those that the CPU takes, if the database has the same ones for it, are no samples.
    """
    name = name_of(op)
    before = fallbacks()
    count = 0
    found, on_cpu = list(op.error_inputs("neuron")), list(op.error_inputs("cpu"))
    for position, wanted in enumerate(found):
        if len(on_cpu) == len(found) and _raised(op, on_cpu[position].sample_input) is None:
            continue
        count += 1
        raised = _raised(op, wanted.sample_input)
        if not isinstance(raised, wanted.error_type):
            got = "nothing" if raised is None else f"{type(raised).__name__}: {raised!s:.200}"
            problem = f"raises {got} instead of {wanted.error_type}: {wanted.error_regex}"
            return Row(name, "wrong", count, problem[:300])
    return _right(name, count, before) if count else Row(name, "no sample", 0)


def _raised(op: OpInfo, sample: SampleInput) -> Exception | None:
    """What running the sample raises."""
    try:
        op(sample.input, *sample.args, **sample.kwargs)
        torch.neuron.synchronize()
    except Exception as error:
        return error
    return None


def _right(name: str, count: int, before: Counter[str]) -> Row:
    fell_back = fallbacks() - before
    return Row(name, "fallback" if fell_back else "native", count, ", ".join(sorted(fell_back)))
