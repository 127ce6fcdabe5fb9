"""Keeps TorchDynamo out of the Python code that the core calls."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

F = TypeVar("F", bound=Callable[..., Any])

_SKIP = eval_frame._FrameAction.SKIP


def untraced(function: F) -> F:
    """Let TorchDynamo run ``function``, and all that it calls, as they are.

    Between the graphs of a compiled function Dynamo looks at every frame of Python that begins.
    Where an operation there needs a program, the core calls Python, and Dynamo would trace and
    compile the very code that lowers the operation. ``torch.compiler.disable`` does the same, but
    imports the whole compiler.
    """
    strategy = eval_frame._FrameExecStrategy(_SKIP, _SKIP)
    eval_frame.set_code_exec_strategy(function.__code__, strategy)
    return function
