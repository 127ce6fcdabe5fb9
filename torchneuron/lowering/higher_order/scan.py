"""``scan`` and ``map``: loops over the first dimension of their inputs."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torchneuron.lowering.builder import Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.higher_order import mutation
from torchneuron.lowering.higher_order.loop import Loop, element, with_element
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.registry import higher_order


@higher_order("scan")
def scan(interpreter: Interpreter, *args: Any) -> list[Any]:
    """The last carries and, stacked, what each step gives besides."""
    return lower_scan(interpreter, *args)[0]


@higher_order("map_impl")
def map_(interpreter: Interpreter, *args: Any) -> list[Any]:
    """The stacked results."""
    return lower_map(interpreter, *args)[0]


def lower_scan(
    interpreter: Interpreter,
    combine_graph: fx.GraphModule,
    init: Sequence[Val],
    xs: Sequence[Val],
    additional_inputs: Sequence[Any] = (),
) -> tuple[list[Any], dict[int, Val]]:
    """The results, and the new values of the additional inputs that a step writes."""
    return _scan(interpreter, "scan", combine_graph, init, xs, additional_inputs)


def lower_map(
    interpreter: Interpreter,
    body_graph: fx.GraphModule,
    xs: Sequence[Val],
    pos_args: Sequence[Any] = (),
) -> tuple[list[Any], dict[int, Val]]:
    """The results, and the new values of the mapped inputs whose elements a step writes."""
    return _scan(interpreter, "map_impl", body_graph, [], xs, pos_args)


def _scan(
    interpreter: Interpreter,
    name: str,
    graph: fx.GraphModule,
    init: Sequence[Val],
    xs: Sequence[Val],
    additional: Sequence[Any],
) -> tuple[list[Any], dict[int, Val]]:
    b = interpreter.builder
    trips = xs[0].shape[0]
    if any(x.shape[0] != trips for x in xs):
        raise LoweringError(name, f"inputs of {[x.shape[0] for x in xs]} elements")
    loop = Loop(b, name)
    index = loop.carry(b.full((), 0, torch.int64))
    carried = [loop.carry(x) for x in init]
    sources = [loop.carry(x) for x in xs]
    extra = [loop.carry(x) if isinstance(x, Val) else x for x in additional]
    inputs = [*carried, *sources, *extra]
    stacked: list[bool] = []
    written: list[int] = []

    def body() -> None:
        slices = [element(b, source, index) for source in sources]
        results, writes = mutation.run(interpreter, graph, [*carried, *slices, *extra])
        for value, result in zip(carried, results, strict=False):
            loop.follow(value, result)
        for result in results[len(carried) :]:
            stacked.append(isinstance(result, Val))
            if isinstance(result, Val):
                buffer = loop.buffer(result.dtype, (trips, *result.shape))
                loop.follow(buffer, with_element(b, buffer, index, result))
            elif result is not None:
                raise LoweringError(name, f"a step gives {result!r}")
        for position, value in writes.items():
            if position < len(carried):
                raise LoweringError(name, "a step writes to what it carries")
            into = inputs[position]
            is_slice = position < len(carried) + len(sources)
            loop.follow(into, with_element(b, into, index, value) if is_slice else value)
            written.append(position)
        loop.follow(index, b.add(index, 1))

    state = iter(loop.run(lambda: b.lt(index, trips), body, trips)[1:])
    after = [next(state) if isinstance(x, Val) else x for x in inputs]
    results = after[: len(carried)] + [next(state) if one else None for one in stacked]
    return results, {position: after[position] for position in written}
