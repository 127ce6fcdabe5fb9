"""Random ops whose generator state is a value of the graph, as checkpointing wants: the forward
graph saves the state that an op starts from, the backward graph draws the same numbers again.

A state is a ui8 tensor of 16 elements, what ``torch.neuron.get_rng_state`` gives: the seed and the
offset, 8 bytes each.
"""

from typing import Any

import torch
from torch._ops import OpOverload

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.registry import higher_order

STATE_BYTES = 16
_U64 = torch.uint64


def _to_bytes(b: Builder, state: Val) -> Val:
    return b.reshape(b.bitcast_convert(state, torch.uint8), (STATE_BYTES,))


def _from_bytes(b: Builder, op: str, state: Any) -> Val:
    if not isinstance(state, Val) or state.dtype is not torch.uint8:
        raise LoweringError(op, "its generator state is no tensor of the program")
    if state.shape != (STATE_BYTES,):
        raise LoweringError(op, f"a generator state of shape {state.shape}")
    return b.bitcast_convert(b.reshape(state, (2, 8)), _U64)


@higher_order("run_and_save_rng_state")
def run_and_save_rng_state(
    interpreter: Interpreter, op: OpOverload, *args: Any, **kwargs: Any
) -> list[Any]:
    """The state before the op, and its result."""
    b = interpreter.builder
    state = _to_bytes(b, b.random_state())
    start = b.rng_offset
    result = interpreter.apply(op, args, kwargs)
    if b.rng_offset == start:
        # An op on no elements draws nothing, but the state has to come from somewhere.
        b.rng_offset += 4
    return [state, result]


@higher_order("run_with_rng_state")
def run_with_rng_state(
    interpreter: Interpreter, state: Any, op: OpOverload, *args: Any, **kwargs: Any
) -> Any:
    """The op's result from ``state`` on; the program's own generator stays where it is."""
    b = interpreter.builder
    with b.random_stream(_from_bytes(b, "run_with_rng_state", state)):
        return interpreter.apply(op, args, kwargs)


@higher_order("graphsafe_run_with_rng_state")
def graphsafe_run_with_rng_state(
    interpreter: Interpreter, op: OpOverload, *args: Any, rng_state: Any = None, **kwargs: Any
) -> Any:
    """The same, for graphs that take the state as their last input."""
    b = interpreter.builder
    with b.random_stream(_from_bytes(b, "graphsafe_run_with_rng_state", rng_state)):
        return interpreter.apply(op, args, kwargs)
