"""Runs op_db samples on the device and on the CPU and says per op: native, fallback, wrong or error.

    python -m tests.conformance.sweep [--dtype float32] [--samples 2] [--ops regex] [--backward]
                                      [--variants] [--json FILE]

A row per op; the fallback column comes from the backend's own counters.
"""

import argparse
import json
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from typing import Any

os.environ.setdefault("TORCHNEURON_FALLBACK", "allow")

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from tests.conformance.differences import BY_DESIGN

# What these ops give is memory that nobody wrote.
_UNWRITTEN = re.compile(r"empty")
# Arguments that PyTorch wants on the CPU, whatever the device.
_HOST_ARGUMENTS = {"tensor_split": 0}
_WIDER = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass
class Row:
    """What became of one op."""

    op: str
    status: str
    samples: int
    reason: str = ""


@dataclass
class Case:
    """One sample of an op: a function of its inputs and what it gives on the CPU."""

    function: Callable[..., Any]
    inputs: tuple[Any, tuple[Any, ...], dict[str, Any]]
    expected: Any
    random: bool
    host_argument: int | None


def name_of(op: OpInfo) -> str:
    """The op's name in op_db, unique with its variant."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


@cache
def ops() -> dict[str, OpInfo]:
    """All of op_db by name."""
    return {name_of(op): op for op in op_db}


def to_device(value: Any, device: str) -> Any:
    """The value with its tensors, and what names a device, on ``device``; in-place use is safe."""

    def move(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            moved = item.detach().to(device)
            moved = moved.clone() if moved is item or device == "cpu" else moved
            return moved.requires_grad_(item.requires_grad)
        return torch.device(device) if isinstance(item, torch.device) or item == "cpu" else item

    return tree_map(move, value)


def gradients(outputs: Any, inputs: Any) -> list[Any]:
    """Gradients of the outputs' sums by the inputs that ask for them."""
    leaves = [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    results = [t for t in tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not leaves or not results:
        return []
    ones = [torch.ones_like(result) for result in results]
    return list(torch.autograd.grad(results, leaves, ones, allow_unused=True))


def forward(op: OpInfo) -> Callable[..., Any]:
    """The op itself."""
    return lambda input, *args, **kwargs: op(input, *args, **kwargs)


def forward_and_backward(op: OpInfo) -> Callable[..., Any]:
    """The op's results and their gradients."""

    def run(*args: Any, **kwargs: Any) -> Any:
        results = op(*args, **kwargs)
        return results, gradients(results, (args, kwargs))

    return run


def in_place(op: OpInfo) -> Callable[..., Any]:
    """The op's in-place variant, on a copy that is not all of its storage."""

    def run(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        room = torch.zeros((3, *input.shape), dtype=input.dtype, device=input.device)
        target = room[1].copy_(input)
        result = op.get_inplace()(target, *args, **kwargs)
        return result, room

    return run


def with_out(op: OpInfo) -> Callable[..., Any]:
    """The op with ``out=`` tensors: empty ones, and ones that are not dense."""

    def run(*args: Any, **kwargs: Any) -> Any:
        results = op(*args, **kwargs)
        tensors = [results] if isinstance(results, torch.Tensor) else list(results)
        empty = [torch.empty(0, dtype=t.dtype, device=t.device) for t in tensors]
        strided = [
            torch.zeros((*t.shape, 2), dtype=t.dtype, device=t.device)[..., 1] for t in tensors
        ]
        for outs in (empty, strided):
            op(*args, **kwargs, out=outs[0] if isinstance(results, torch.Tensor) else tuple(outs))
        return results, empty, strided

    return run


def functions(op: OpInfo, dtype: torch.dtype, backward: bool, variants: bool) -> list[Any]:
    """What to run of an op."""
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    chosen = [forward_and_backward(op) if backward and differentiable else forward(op)]
    if variants and op.get_inplace() is not None:
        chosen.append(in_place(op))
    if variants and op.supports_out:
        chosen.append(with_out(op))
    return chosen


def cases(
    op: OpInfo, dtype: torch.dtype, limit: int, backward: bool, variants: bool
) -> Iterator[Case]:
    """The first ``limit`` samples that the CPU can run."""
    for position, function in enumerate(functions(op, dtype, backward, variants)):
        found = _cases(op, function, dtype, backward and not position)
        yield from islice(found, limit)


def _cases(
    op: OpInfo, function: Callable[..., Any], dtype: torch.dtype, backward: bool
) -> Iterator[Case]:
    grad = backward and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for sample in op.sample_inputs("cpu", dtype, requires_grad=grad):
        inputs = (sample.input, sample.args, sample.kwargs)
        state = torch.get_rng_state()
        try:
            expected = _apply(function, to_device(inputs, "cpu"))
        except Exception:
            continue
        random = not torch.equal(state, torch.get_rng_state()) or bool(_UNWRITTEN.search(op.name))
        yield Case(function, inputs, expected, random, _HOST_ARGUMENTS.get(op.name))


def _apply(function: Callable[..., Any], inputs: tuple[Any, Any, Any]) -> Any:
    return function(inputs[0], *inputs[1], **inputs[2])


def on_device(case: Case) -> Any:
    """What the case gives on the device."""
    first, args, kwargs = to_device(case.inputs, "neuron")
    if case.host_argument is not None:
        kept = case.inputs[1][case.host_argument]
        args = (*args[: case.host_argument], kept, *args[case.host_argument + 1 :])
    result = _apply(case.function, (first, args, kwargs))
    torch.neuron.synchronize()
    return result


def exact(case: Case) -> Any:
    """What the case gives on the CPU in the next wider dtype."""

    def widen(item: Any) -> Any:
        if isinstance(item, torch.Tensor) and item.dtype in _WIDER:
            return item.detach().to(_WIDER[item.dtype]).requires_grad_(item.requires_grad)
        return _WIDER.get(item, item) if isinstance(item, torch.dtype) else item

    return _apply(case.function, to_device(tree_map(widen, case.inputs), "cpu"))


def compare(actual: Any, expected: Any, exact_values: bool) -> None:
    """Raise AssertionError unless the results agree by PyTorch's default tolerances."""
    left, right = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(left) == len(right), f"{len(left)} results instead of {len(right)}"
    for a, e in zip(left, right, strict=True):
        if isinstance(e, torch.Tensor):
            assert a.shape == e.shape and a.dtype == e.dtype, (a.shape, a.dtype, e.shape, e.dtype)
            if exact_values and not e.is_sparse:
                torch.testing.assert_close(a.cpu(), e, equal_nan=True)
        elif exact_values:
            assert a == e or (a != a and e != e), (a, e)


def compare_with_exact(actual: Any, expected: Any, reference: Any) -> None:
    """Raise AssertionError if a result is neither close to the reference nor closer than the CPU's.

    For the ops in BY_DESIGN: their inexactness on the CPU is larger than the tolerance.
    """
    leaves = [tree_leaves(value) for value in (actual, expected, reference)]
    for a, e, r in zip(*leaves, strict=True):
        if not isinstance(e, torch.Tensor) or not (e.is_floating_point() or e.is_complex()):
            compare(a, e, True)
            continue
        assert a.shape == e.shape, (a.shape, e.shape)
        wide = r.detach().to(a.dtype)
        try:
            torch.testing.assert_close(a.detach().cpu(), wide, equal_nan=True)
        except AssertionError:
            if not _error(a, r) <= _error(e, r):
                raise


def _error(value: torch.Tensor, reference: torch.Tensor) -> float:
    return float((value.detach().cpu().to(reference.dtype) - reference).abs().max())


def judge(name: str, case: Case, actual: Any) -> str:
    """Empty if the results are right, else the way in which they are wrong."""
    try:
        compare(actual, case.expected, not case.random)
    except AssertionError as error:
        if name not in BY_DESIGN:
            return str(error)
        try:
            compare_with_exact(actual, case.expected, exact(case))
        except AssertionError as worse:
            return str(worse)
    return ""


def fallbacks() -> Counter[str]:
    """Calls that went to the CPU, by op."""
    return Counter(torch.neuron.metrics()["fallbacks"])


def run_op(
    op: OpInfo, dtype: torch.dtype, limit: int, backward: bool = False, variants: bool = False
) -> Row:
    """Run ``limit`` samples of an op on the device and compare them with the CPU."""
    name = name_of(op)
    before = fallbacks()
    count = 0
    for case in cases(op, dtype, limit, backward, variants):
        count += 1
        try:
            actual = on_device(case)
        except Exception as error:
            return Row(name, "error", count, f"{type(error).__name__}: {str(error)[:300]}")
        wrong = judge(name, case, actual)
        if wrong:
            return Row(name, "wrong", count, wrong[:300].replace("\n", " "))
    if not count:
        return Row(name, "no sample", 0)
    fell_back = fallbacks() - before
    return Row(name, "fallback" if fell_back else "native", count, ", ".join(sorted(fell_back)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--ops", default="", help="only ops whose name this regex matches")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--variants", action="store_true", help="in-place and out= too")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    dtype = getattr(torch, args.dtype)
    rows = []
    for name, op in ops().items():
        if not re.search(args.ops, name) or dtype not in op.supported_dtypes("cpu"):
            continue
        row = run_op(op, dtype, args.samples, args.backward, args.variants)
        rows.append(row)
        print(f"{row.status:9} {row.op} {row.reason}", flush=True)
    print(Counter(row.status for row in rows), file=sys.stderr)
    if args.json:
        with open(args.json, "w") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
