"""``associative_scan``."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from torchneuron.lowering.builder import Val
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.registry import higher_order

Combine = Callable[..., list[Tensor]]


@higher_order("associative_scan")
def associative_scan(
    interpreter: Interpreter,
    combine_graph: fx.GraphModule,
    xs: Sequence[Val],
    additional_inputs: Sequence[Any] = (),
) -> Any:
    """In about 2 log2(n) steps, each on many elements at once; no loop."""

    def function(xs: Sequence[Tensor], extra: Sequence[Any]) -> list[Tensor]:
        dims = (0,) * (2 * len(xs)) + (None,) * len(extra)
        batched = torch.vmap(combine_graph, in_dims=dims)

        def combine(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
            return list(batched(*left, *right, *extra))

        return _prefixes(combine, list(xs))

    return interpreter.expand("associative_scan", function, (list(xs), list(additional_inputs)), {})


def _prefixes(combine: Combine, xs: list[Tensor]) -> list[Tensor]:
    """What ``combine`` makes of the first 1, 2, ... n elements along dimension 0."""
    count = xs[0].shape[0]
    if count < 2:
        return xs
    pairs = combine([x[0 : count - 1 : 2] for x in xs], [x[1::2] for x in xs])
    # The prefixes of even length: those of the pairs.
    even = _prefixes(combine, pairs)
    rest = (count - 1) // 2
    odd = [x[:1] for x in xs]
    if rest:
        longer = combine([x[:rest] for x in even], [x[2::2] for x in xs])
        odd = [torch.cat([first, more]) for first, more in zip(odd, longer, strict=True)]
    return [_alternate(one, other) for one, other in zip(odd, even, strict=True)]


def _alternate(first: Tensor, second: Tensor) -> Tensor:
    """first[0], second[0], first[1], ...; ``first`` may have one more."""
    together = torch.stack([first[: second.shape[0]], second], 1).flatten(0, 1)
    return torch.cat([together, first[second.shape[0] :]])
