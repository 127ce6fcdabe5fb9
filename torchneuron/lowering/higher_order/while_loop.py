"""``while_loop``."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torchneuron.lowering.builder import Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.higher_order import mutation
from torchneuron.lowering.higher_order.loop import Loop, with_element
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.registry import higher_order
from torchneuron.lowering.symbolic import number


@higher_order("while_loop")
def while_loop(interpreter: Interpreter, *args: Any, **kwargs: Any) -> list[Any]:
    """Numbers that are carried are operands inside and after the loop."""
    return lower(interpreter, *args, **kwargs)[0]


def lower(
    interpreter: Interpreter,
    cond_graph: fx.GraphModule,
    body_graph: fx.GraphModule,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
    mutated_arg_indices: str = "",
) -> tuple[list[Any], dict[int, Val]]:
    """The last carries, and the new values of the inputs that the body writes."""
    b = interpreter.builder
    loop = Loop(b, "while_loop")
    carried = [loop.carry(x if isinstance(x, Val) else number(b, x)) for x in carried_inputs]
    extra = [loop.carry(x) if isinstance(x, Val) else x for x in additional_inputs]

    def condition() -> Val:
        holds = interpreter.subgraph(cond_graph, [*carried, *extra])[0]
        if not isinstance(holds, Val):
            return b.full((), bool(holds), torch.bool)
        return b.convert(b.reshape(holds, ()), torch.bool)

    def body() -> None:
        results, writes = mutation.run(interpreter, body_graph, [*carried, *extra])
        if len(results) != len(carried):
            raise LoweringError(
                "while_loop", f"the body gives {len(results)} values for {len(carried)}"
            )
        for value, result in zip(carried, results, strict=True):
            following = number(b, result) if value.wrapped else result
            if not isinstance(following, Val):
                raise LoweringError("while_loop", f"the body gives {following!r} for a tensor")
            loop.follow(value, following)
        for position, value in writes.items():
            if position < len(carried):
                raise LoweringError("while_loop", "the body writes to what it carries")
            loop.follow(extra[position - len(carried)], value)
            written.append(position)

    written: list[int] = []
    state = loop.run(condition, body, trips=None)
    after = iter(state[len(carried) :])
    extra_after = [next(after) if isinstance(x, Val) else x for x in extra]
    return state[: len(carried)], {i: extra_after[i - len(carried)] for i in written}


@higher_order("while_loop_stack_output")
def while_loop_stack_output(
    interpreter: Interpreter,
    cond_graph: fx.GraphModule,
    body_graph: fx.GraphModule,
    carried_inputs: Sequence[Val],
    additional_inputs: Sequence[Any] = (),
    capacity: int | None = None,
) -> list[Val]:
    """At most ``capacity`` steps: what each gave, stacked (zeros after the last); what is carried then; and
    (steps, whether there are more), int64 (2,). PyTorch's operator has no ``capacity``: whoever compiles it
    puts the stacks of several such programs together.
    """
    if capacity is None:
        raise LoweringError(
            "while_loop_stack_output", "how much it gives depends on how many steps there are"
        )
    b = interpreter.builder
    loop = Loop(b, "while_loop_stack_output")
    index = loop.carry(b.full((), 0, torch.int64))
    carried = [loop.carry(x) for x in carried_inputs]
    extra = [loop.carry(x) if isinstance(x, Val) else x for x in additional_inputs]
    stacks = [loop.buffer(x.dtype, (capacity, *x.shape)) for x in carried]

    def holds(values: Sequence[Any]) -> Val:
        found = interpreter.subgraph(cond_graph, values)[0]
        if not isinstance(found, Val):
            return b.full((), bool(found), torch.bool)
        return b.convert(b.reshape(found, ()), torch.bool)

    def body() -> None:
        results, writes = mutation.run(interpreter, body_graph, [*carried, *extra])
        if writes:
            raise LoweringError("while_loop_stack_output", "the body writes to its inputs")
        for value, stack, result in zip(carried, stacks, results, strict=True):
            loop.follow(value, result)
            loop.follow(stack, with_element(b, stack, index, result))
        loop.follow(index, b.add(index, 1))

    state = loop.run(
        lambda: b.and_(b.lt(index, capacity), holds([*carried, *extra])), body, trips=None
    )
    steps, *rest = state
    last, after = rest[: len(carried)], iter(rest[len(carried) :])
    extra_after = [next(after) if isinstance(x, Val) else x for x in extra]
    more = b.convert(holds([*last, *extra_after]), torch.int64)
    counts = b.concat([b.reshape(steps, (1,)), b.reshape(more, (1,))], 0)
    return [*list(after)[: len(stacks)], *last, counts]
