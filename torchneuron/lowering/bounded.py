"""Programs of ops whose results' sizes depend on data: nonzero, masked_select, unique.

Such a program computes results padded to the largest size that the arguments' shapes allow, and the true sizes. In a
graph the op's node stands for more than the op: its value is the tuple of the padded results and, last, an int64
vector of counts. So whoever builds the graph

* asks ``bounded_outputs(op, args, kwargs)``, with meta tensors for tensors, what the results look like (None: the op
  is not of this kind),
* sets ``node.meta["val"] = padded_values(outputs)``, which tells the lowering that it knows, and takes every result,
  the counts included, by ``operator.getitem``,
* after the program has run reads the counts and narrows dimension 0 of each result that has one to
  ``counts[output.count]``.

Without that ``meta["val"]`` the ops raise LoweringError: a graph of static shapes cannot hold them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import canonical, emitter, load


@dataclass(frozen=True)
class BoundedOutput:
    """One result: dense with ``strides``; ``count`` says which count is the true size of dimension 0, -1 none."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    count: int


Outputs = Callable[..., Sequence[BoundedOutput]]
_outputs: dict[str, Outputs] = {}


def output(dtype: torch.dtype, sizes: Sequence[int], count: int = -1) -> BoundedOutput:
    """A row-major result."""
    strides = torch.empty(tuple(sizes), device="meta").stride()
    return BoundedOutput(dtype, tuple(sizes), tuple(strides), count)


def bounded(name: str, outputs: Outputs) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register ``fn(b, *args, **kwargs) -> (padded results..., counts)`` as the program of the op ``name``.

    ``outputs``, called with the op's arguments and meta tensors for tensors, describes the padded results. It may
    raise LoweringError for arguments that have no such program.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        key = canonical(name)

        def emit(b: Any, out: Any, *args: Any, **kwargs: Any) -> Any:
            # The op's own results without counts mean that nobody will narrow them.
            if not isinstance(out, (tuple, list)) or len(out) != _result_count(key) + 1:
                raise LoweringError(key, "the size of its result depends on data")
            return function(b, *args, **kwargs)

        emitter(name)(emit)
        _outputs[key] = outputs
        return function

    return register


@cache
def _result_count(key: str) -> int:
    namespace, op, overload = key.split(".")
    return len(getattr(getattr(getattr(torch.ops, namespace), op), overload)._schema.returns)


def bounded_outputs(
    op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[BoundedOutput] | None:
    """The padded results and, last, the counts of an op of this kind; None for any other op."""
    load()
    describe = _outputs.get(str(op))
    if describe is None:
        return None
    results = list(describe(*args, **kwargs))
    counts = 1 + max(result.count for result in results)
    return [*results, output(torch.int64, (counts,))]


def padded_values(outputs: Sequence[BoundedOutput]) -> tuple[torch.Tensor, ...]:
    """The results as meta tensors, for ``node.meta["val"]``."""
    return tuple(
        torch.empty_strided(one.sizes, one.strides, dtype=one.dtype, device="meta")
        for one in outputs
    )
