"""Runs op_db samples on the device and on the CPU and says per op: native, fallback, wrong or error.

    python tests/conformance/sweep.py [--dtype float32] [--samples 2] [--ops regex] [--backward] [--json FILE]

A row per op; the fallback column comes from the backend's own counters.
"""

import argparse
import json
import os
import re
import sys
import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("TORCHNEURON_FALLBACK", "allow")

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

RANDOM = re.compile(
    r"rand|normal|bernoulli|dropout|multinomial|uniform|exponential|geometric|cauchy|^empty|new_empty|alpha_dropout"
)


@dataclass
class Row:
    """What became of one op."""

    op: str
    status: str
    samples: int
    reason: str = ""


def to_device(value: Any, device: str) -> Any:
    def move(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            moved = item.detach().to(device)
            return moved.requires_grad_(item.requires_grad)
        return torch.device(device) if isinstance(item, torch.device) or item == "cpu" else item

    return tree_map(move, value)


def compare(actual: Any, expected: Any, exact_values: bool) -> None:
    left, right = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(left) == len(right), f"{len(left)} results instead of {len(right)}"
    for a, e in zip(left, right, strict=True):
        if isinstance(e, torch.Tensor):
            assert a.shape == e.shape and a.dtype == e.dtype, (a.shape, a.dtype, e.shape, e.dtype)
            if exact_values and not e.is_sparse:
                torch.testing.assert_close(a.cpu(), e, equal_nan=True)
        elif exact_values:
            assert a == e or (a != a and e != e), (a, e)


def gradients(outputs: Any, inputs: Any) -> list[Any]:
    leaves = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    results = [t for t in tree_flatten(outputs)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if not leaves or not results:
        return []
    return list(torch.autograd.grad(results, leaves, [torch.ones_like(r) for r in results], allow_unused=True))


def fallbacks() -> Counter[str]:
    return Counter(torch.neuron.metrics()["fallbacks"])


def run_op(op: Any, dtype: torch.dtype, limit: int, backward: bool) -> Row:
    name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    exact = not RANDOM.search(op.name)
    fell_back: Counter[str] = Counter()
    count = 0
    want_grad = backward and op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=want_grad):
        if count >= limit:
            break
        inputs = (sample.input, sample.args, sample.kwargs)
        try:
            expected = op(inputs[0], *inputs[1], **inputs[2])
            expected_grads = gradients(expected, inputs) if want_grad else []
        except Exception:
            continue
        count += 1
        try:
            moved = to_device(inputs, "neuron")
            before = fallbacks()
            actual = op(moved[0], *moved[1], **moved[2])
            actual_grads = gradients(actual, moved) if want_grad else []
            torch.neuron.synchronize()
            fell_back += fallbacks() - before
        except Exception as error:
            return Row(name, "error", count, f"{type(error).__name__}: {str(error)[:300]}")
        try:
            compare(actual, expected, exact)
            compare(actual_grads, expected_grads, exact)
        except AssertionError as error:
            return Row(name, "wrong", count, str(error)[:300].replace("\n", " "))
    if not count:
        return Row(name, "no sample", 0)
    return Row(name, "fallback" if fell_back else "native", count, ", ".join(fell_back))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--ops", default="")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    dtype = getattr(torch, args.dtype)
    rows = []
    for op in op_db:
        if not re.search(args.ops, op.name) or dtype not in op.supported_dtypes("cpu"):
            continue
        row = run_op(op, dtype, args.samples, args.backward)
        rows.append(row)
        print(f"{row.status:9} {row.op} {row.reason}", flush=True)
    print(Counter(row.status for row in rows), file=sys.stderr)
    if args.json:
        with open(args.json, "w") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
