"""Lists the ATen ops that PyTorch's op_db reaches, forward and backward, and have no road to StableHLO.

    python tests/conformance/roads.py [--ops regex] [--samples 3] [--dtype float32] [--roads]

Runs the samples on the CPU, on which PyTorch takes composite ops apart as it does for the device, and looks each op
up in the registry; nothing is lowered. `--roads` lists the ops that have a road too, with the road.
"""

import argparse
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch._ops import OpOverload
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchneuron.eager.functional import functional_form
from torchneuron.lowering import road


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
            if info.inplace_variant is not None and not info.supports_inplace_autograd:
                with suppress(Exception), torch.no_grad():
                    info.inplace_variant(
                        sample.input.detach().clone(), *sample.args, **sample.kwargs
                    )
            totals = [
                leaf
                for leaf in tree_leaves(results)
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad
            ]
            with suppress(Exception):
                torch.autograd.backward(totals, [torch.ones_like(total) for total in totals])
    return collector.ops


def road_of(op: OpOverload) -> str | None:
    """The road of the op, or of what the eager layer makes of one that mutates its arguments."""
    form = functional_form(op)
    return road(form.op) if form is not None else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--ops", default="", help="only op_db entries whose name this regex matches"
    )
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--roads", action="store_true", help="list the ops with a road, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dtype = getattr(torch, options.dtype)
    users: dict[OpOverload, list[str]] = defaultdict(list)
    for info in op_db:
        if re.search(options.ops, info.name) and dtype in info.supported_dtypes("cpu"):
            for op in reach(info, dtype, options.samples):
                users[op].append(info.formatted_name)
    roads = {op: road_of(op) for op in users}
    for op in sorted(users, key=str):
        if options.roads or roads[op] is None:
            print(f"{op!s:60} {roads[op] or '-':14} {', '.join(sorted(set(users[op]))[:4])}")
    missing = sum(1 for found in roads.values() if found is None)
    print(f"{len(roads)} ops reached, {missing} without a road")


if __name__ == "__main__":
    main()
