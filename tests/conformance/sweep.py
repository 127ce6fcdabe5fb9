"""Runs op_db samples on the device and on the CPU and says per op: native, fallback, wrong or error.

    python -m tests.conformance.sweep [--dtype float32] [--samples 2] [--ops regex] [--backward]
                                      [--variants] [--json FILE]

A row per op; the fallback column comes from the backend's own counters.
"""

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves

from tests.conformance.compare import Case, apply, draws, judge, to_device
from torchneuron.settings import settings

# Arguments that PyTorch wants on the CPU, whatever the device.
_HOST_ARGUMENTS = {"tensor_split": 0}


@dataclass
class Row:
    """What became of one op."""

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
    """The op with ``out=`` tensors: empty ones, and ones that are not dense.

    On the CPU only its results: some of its kernels (gelu) write past the strides.
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
        return (tensors, tensors) if tensors[0].is_cpu else (empty, strided)

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
        try:
            after = to_device(inputs, "cpu")
            expected = apply(function, after)
            random = draws(op.name, function, inputs)
        except Exception:
            continue
        yield Case(name_of(op), function, inputs, expected, after, random)


def on_device(case: Case) -> tuple[Any, Any]:
    """What the case gives on the device, and the inputs after it."""
    first, args, kwargs = to_device(case.inputs, "neuron")
    if case.op in _HOST_ARGUMENTS:
        position = _HOST_ARGUMENTS[case.op]
        args = (*args[:position], case.inputs[1][position], *args[position + 1 :])
    result = apply(case.function, (first, args, kwargs))
    torch.neuron.synchronize()
    return result, (first, args, kwargs)


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
            actual, after = on_device(case)
        except Exception as error:
            return Row(name, "error", count, f"{type(error).__name__}: {str(error)[:300]}")
        wrong = judge(case, actual, after)
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
    settings.fallback = "allow"
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
