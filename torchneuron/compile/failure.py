"""What becomes of a graph that cannot be compiled: an error that says where, or a run op by op."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torchneuron.eager.fallback import FallbackWarning, user_frame
from torchneuron.lowering.errors import LoweringError
from torchneuron.program.errors import CompileError
from torchneuron.program.metrics import METRICS

# What a lowering, or the plugin's compiler, refuses a graph with.
REFUSALS = (LoweringError, CompileError)


def advise(error: Exception, graph: str) -> None:
    """Add to the error which graph it is, and what the user can do about it."""
    error.add_note(
        f"This is {graph}. torch.compile(..., options={{'fallback': 'eager'}}) runs a graph that "
        "cannot be compiled operation by operation."
    )


def warn(what: str, reason: str) -> None:
    """Say what runs outside of programs because the option lets it."""
    frame = user_frame()
    warnings.warn_explicit(
        f"{what}, as options={{'fallback': 'eager'}} allows: {reason}",
        FallbackWarning,
        frame.f_code.co_filename if frame is not None else "<autograd>",
        frame.f_lineno if frame is not None else 0,
    )


class EagerGraph:
    """A graph that runs op by op because it cannot be compiled.

    It warns once, when it is made; every call counts in ``torch.neuron.metrics()["fallbacks"]``
    under the graph's name.
    """

    # AOTAutograd's mark of a callable that takes one list.
    _boxed_call = True

    def __init__(self, name: str, forward: Callable[..., Any], error: Exception) -> None:
        """``forward`` takes the graph's arguments one by one; ``error`` says why it is needed."""
        self.name = name
        self._forward = forward
        # Not the error itself: its frames would keep the caller's tensors.
        self._reason = str(error)
        self._line = error.line if isinstance(error, LoweringError) else ""
        warn(f"{name} runs operation by operation", self._reason)

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """The graph's results for its arguments."""
        METRICS.record_fallback(self.name, self._reason, self._line)
        results = self._forward(*args)
        return results if isinstance(results, (tuple, list)) else (results,)
