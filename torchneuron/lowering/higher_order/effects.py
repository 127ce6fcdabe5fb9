"""Ops with side effects, which AOTAutograd keeps in order by tokens."""

from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.registry import emitter, higher_order


@higher_order("with_effects")
def with_effects(
    interpreter: Interpreter, token: Any, op: Any, *args: Any, **kwargs: Any
) -> list[Any]:
    """[token, results...]: an op that the program computes has no effect left to order."""
    result = interpreter.apply(op, args, kwargs)
    results = list(result) if isinstance(result, tuple | list) else [result]
    return [token, *results]


@higher_order("print")
def print_(interpreter: Interpreter, format_str: str, *args: Any, **kwargs: Any) -> None:
    """A program cannot print."""
    raise LoweringError("print", "a program on the device cannot print; print outside of it")


@emitter("prims._make_token")
def make_token(b: Builder, out: Any) -> Val:
    """An empty tensor."""
    return b.full((0,), 0, torch.float32)


@emitter("prims._sink_tokens")
def sink_tokens(b: Builder, out: Any, tokens: list[Val]) -> None:
    """The tokens have done their work."""
