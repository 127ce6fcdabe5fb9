"""The options of ``torch.compile(..., backend="neuron", options={...})``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

# From this many programs on, for different shapes, a graph says that fewer would do.
MANY_PROGRAMS = 32

Fallback = Literal["error", "eager"]
Sizes = tuple[int, ...] | Literal["powers_of_two"]
# For each dimension of arguments, or None for any: increasing sizes, or all powers of two.
Buckets = tuple[tuple[int | None, Sizes], ...]

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
    ``freeze``: whether inference graphs compute once what depends on parameters and buffers alone.
    ``buckets``: sizes to which a dynamic dimension is padded where that cannot change a result.
    """

    fallback: Fallback = "error"
    programs: int = 256
    freeze: bool = False
    buckets: Buckets = ()


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
    freeze = given.get("freeze", False)
    if not isinstance(freeze, bool):
        raise ValueError(f"freeze must be True or False, not {freeze!r}")
    if "buckets" in given:
        given["buckets"] = _buckets(given["buckets"])
    return Options(**given)


def _buckets(given: Any) -> Buckets:
    """Sizes for all dimensions, or a mapping from dimensions to sizes."""
    if not isinstance(given, Mapping):
        return ((None, _sizes(given)),)
    if not given or not all(isinstance(dim, int) and dim >= 0 for dim in given):
        raise ValueError(f"buckets must map dimensions (0, 1, ...) to sizes, not {given!r}")
    return tuple((dim, _sizes(sizes)) for dim, sizes in given.items())


def _sizes(given: Any) -> Sizes:
    if given == "powers_of_two":
        return "powers_of_two"
    sizes = tuple(given) if isinstance(given, (list, tuple)) else ()
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes)
    if not sizes or not whole or list(sizes) != sorted(set(sizes)):
        raise ValueError(
            f"buckets must be 'powers_of_two' or a list of increasing positive sizes, not {given!r}"
        )
    return sizes
