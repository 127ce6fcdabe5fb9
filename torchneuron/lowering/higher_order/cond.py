"""``torch.cond``."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from torchneuron.lowering.builder import Builder, Result, Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.higher_order import mutation
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.registry import higher_order
from torchneuron.lowering.symbolic import number


@higher_order("cond")
def cond(interpreter: Interpreter, *args: Any) -> list[Any]:
    """One branch runs. The generator advances by what the branch that draws more draws."""
    return lower(interpreter, *args)[0]


def lower(
    interpreter: Interpreter,
    predicate: Any,
    true_graph: fx.GraphModule,
    false_graph: fx.GraphModule,
    operands: Sequence[Any] = (),
) -> tuple[list[Any], dict[int, Val]]:
    """The results, and the new values of the operands that a branch writes."""
    if not isinstance(predicate, Val):
        return mutation.run(interpreter, true_graph if predicate else false_graph, operands)
    b = interpreter.builder
    start, most = b.rng_offset, b.rng_offset
    captured = []
    for graph in (true_graph, false_graph):
        b.rng_offset = start
        captured.append(b.capture(partial(mutation.run, interpreter, graph, operands)))
        most = max(most, b.rng_offset)
    b.rng_offset = most
    written = sorted({i for _, (_, writes) in captured for i in writes})
    branches = [
        (lines, [*results, *(writes.get(i, operands[i]) for i in written)])
        for lines, (results, writes) in captured
    ]
    values = _choose(b, b.convert(b.reshape(predicate, ()), torch.bool), branches)
    results = values[: len(values) - len(written)]
    return results, dict(zip(written, values[len(results) :], strict=True))


def _choose(b: Builder, predicate: Val, branches: list[tuple[list[str], list[Any]]]) -> list[Any]:
    """The results of the branch taken; what both give alike is no result of the conditional."""
    (_, first), (_, second) = branches
    if len(first) != len(second):
        raise LoweringError("cond", f"branches give {len(first)} and {len(second)} results")
    results = list(first)
    varying = [i for i, (x, y) in enumerate(zip(first, second, strict=True)) if _differ(x, y)]
    regions: list[str] = []
    types: tuple[list[Result], list[Result]] = ([], [])
    for (lines, values), kinds in zip(branches, types, strict=True):
        ending, _ = b.capture(partial(_give, b, values, varying, kinds))
        regions.append(b.block([], [*lines, *ending]))
    if types[0] != types[1]:
        raise LoweringError("cond", f"branches give {types[0]} and {types[1]}")
    if varying:
        chosen = b.op("stablehlo.if", [predicate], types[0], "", regions)
        for position, value in zip(varying, chosen, strict=True):
            numbers = not isinstance(first[position], Val) or first[position].wrapped
            results[position] = Val(value.ir, value.dtype, value.shape, numbers)
    return results


def _differ(x: Any, y: Any) -> bool:
    if isinstance(x, Val) or isinstance(y, Val):
        return True
    return type(x) is not type(y) or x != y


def _give(b: Builder, values: list[Any], varying: list[int], kinds: list[Result]) -> None:
    """End a branch."""
    given = []
    for position in varying:
        value = values[position]
        if value is None:
            raise LoweringError("cond", f"only one branch gives result {position}")
        given.append(value if isinstance(value, Val) else number(b, value))
    kinds.extend((value.dtype, value.shape) for value in given)
    b.op("stablehlo.return", given, [])
