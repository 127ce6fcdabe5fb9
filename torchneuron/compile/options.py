"""The options of ``torch.compile(..., backend="neuron", options={...})``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

# From this many programs on, for different shapes, a graph says that fewer would do.
MANY_PROGRAMS = 32

Fallback = Literal["error", "eager"]

# PyTorch's modes choose between Inductor's ways to launch and tune. Here a compiled call runs without
# Python in every mode and there is nothing to tune, so that all of them mean the same.
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Options:
    """What a user may choose for one compiled function.

    ``fallback``: what becomes of a graph with an operation that cannot be lowered. "error" raises,
    naming the operation and its line; "eager" runs that graph operation by operation.
    ``programs``: how many programs, one for each combination of shapes, a graph keeps; the one used
    longest ago makes room for a new one.
    """

    fallback: Fallback = "error"
    programs: int = 256


def parse(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """The options that a call of ``torch.compile`` gave; the mapping is left as it is.

    Raises ValueError for a mode, a key or a value that does not exist.

        >>> parse(None, {"fallback": "eager"}).fallback
        'eager'
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    given = dict(options or {})
    known = [field.name for field in fields(Options)]
    unknown = sorted(str(key) for key in given if key not in known)
    if unknown:
        raise ValueError(
            f"backend 'neuron' has no option {', '.join(unknown)}; it has {', '.join(known)}"
        )
    if given.get("fallback", "error") not in ("error", "eager"):
        raise ValueError(f"fallback must be 'error' or 'eager', not {given['fallback']!r}")
    programs = given.get("programs", 1)
    if not isinstance(programs, int) or isinstance(programs, bool) or programs < 1:
        raise ValueError(f"programs must be an integer of at least 1, not {programs!r}")
    return Options(**given)
