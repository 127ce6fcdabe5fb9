"""Writes docs/roads.csv: where each ATen operator is handled.

    python -m tests.conformance.roads [--ops REGEX] [--samples 1] [--missing]

The operators are those that the registry names, and those that PyTorch's op_db reaches, forward and backward: its
samples are run on the CPU, on which PyTorch takes composite ops apart as it does for the device; nothing is lowered.
A road is "emitter", "decomposition" (ours, or PyTorch's), "torch-mlir", "composite" (of several programs), "view",
"core" (a C++ kernel that makes or copies memory) or "fallback" (the CPU). With --missing it only prints those that fall
back.
"""

import argparse
import csv
import inspect
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchneuron.eager import composites
from torchneuron.eager.functional import functional_form
from torchneuron.lowering import road
from torchneuron.lowering.registry import registered

_ROOT = Path(__file__).parents[2]
_TABLE = _ROOT / "docs" / "roads.csv"
_CORE = "csrc/eager/tensor_ops.cpp"


class Collector(TorchDispatchMode):
    """Remembers every op that runs under it."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: set[OpOverload] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.add(func)
        return func(*args, **(kwargs or {}))


def samples(info: OpInfo, dtype: torch.dtype, count: int) -> Iterator[SampleInput]:
    """The first samples, which ask for gradients if the op has any."""
    differentiable = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    for index, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=differentiable)):
        if index == count:
            return
        yield sample


def reach(info: OpInfo, dtype: torch.dtype, count: int) -> set[OpOverload]:
    """The ops that ``count`` samples of ``info`` run, with the backward of what they give."""
    collector = Collector()
    with collector, suppress(Exception):
        for sample in samples(info, dtype, count):
            results = info.op(sample.input, *sample.args, **sample.kwargs)
            totals = [
                leaf
                for leaf in tree_leaves(results)
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad
            ]
            with suppress(Exception):
                torch.autograd.backward(totals, [torch.ones_like(total) for total in totals])
    return collector.ops


def reached(regex: str, count: int) -> dict[OpOverload, set[str]]:
    """Every op that op_db reaches with float32, and by which of its entries."""
    users: dict[OpOverload, set[str]] = defaultdict(set)
    for info in op_db:
        if re.search(regex, info.name) and torch.float32 in info.supported_dtypes("cpu"):
            for op in reach(info, torch.float32, count):
                users[op].add(info.formatted_name)
    return users


@cache
def core_ops() -> frozenset[str]:
    """What the C++ core has kernels of its own for: factories, copies, and what changes a tensor's storage."""
    source = (_ROOT / _CORE).read_text()
    return frozenset(re.findall(r'm\.impl\("([^"]+)"', source))


def road_of(op: OpOverload) -> str:
    """The road of the op, or of what the eager layer makes of one that mutates its arguments."""
    if op.is_view:
        return "view"
    if op.name().removeprefix("aten::") in core_ops():
        return "core"
    if str(op) in composites.names():
        return "composite"
    form = functional_form(op)
    found = road(form.op) if form is not None else None
    if found is not None:
        return found
    explicit = torch._C.DispatchKey.CompositeExplicitAutograd
    return "composite" if op.has_kernel_for_dispatch_key(explicit) else "fallback"


def _place(function: Callable[..., Any] | None) -> str:
    """The file that handles an op, from the root of the repository."""
    file = inspect.getsourcefile(inspect.unwrap(function)) if inspect.isfunction(function) else None
    path = Path(file) if file is not None else Path("/")
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else "PyTorch"


def table(regex: str, count: int) -> list[tuple[str, str, str, str]]:
    """Op, road, place and the first entries of op_db that reach it."""
    known = registered()
    rows = {name: (name, way, _place(function), "") for name, (way, function) in known.items()}
    for op, users in reached(regex, count).items():
        name = str(op)
        some = " ".join(sorted(users)[:3])
        if name in rows:
            rows[name] = (*rows[name][:3], some)
            continue
        way = road_of(op)
        form = functional_form(op)
        handled = rows.get(str(form.op)) if form is not None else None
        place = handled[2] if handled else ("PyTorch" if way in ("composite", "view") else "")
        if name in composites.names():
            place = _place(composites.find)
        rows[name] = (name, way, _CORE if way == "core" else place, some)
    return [rows[name] for name in sorted(rows)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", default="", help="only entries of op_db that this regex matches")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument(
        "--missing", action="store_true", help="print what falls back, write nothing"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = table(options.ops, options.samples)
    if options.missing:
        print("\n".join(f"{op:60} {users}" for op, way, _, users in rows if way == "fallback"))
        return
    with _TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("op", "road", "file", "reached by op_db's"))
        writer.writerows(rows)
    print(f"{len(rows)} operators in {_TABLE.relative_to(_ROOT)}")


if __name__ == "__main__":
    main()
