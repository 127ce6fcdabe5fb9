"""What the process has done: counters, compilations with their reason, fallbacks with their line.

The counters of the hot path (executions, hits in the C++ program table, bytes moved) are counted in
C++; ``Metrics.provide`` takes a function that reads them. They only ever grow there: ``reset``
remembers where they stood.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torchneuron.program.fork import after_fork_in_child

Origin = Literal["memory", "disk", "compiled"]
Number = int | float
# A provider gives numbers, and for counters by name (fallbacks) a mapping to numbers.
Provider = Callable[[], Mapping[str, Number | Mapping[str, Number]]]

_EVENTS = 1000
_SIGNATURES = 64
_NUMBERS: dict[str, Number] = {
    "programs_compiled": 0,
    "cache_hits_memory": 0,
    "cache_hits_disk": 0,
    "cache_corrupt": 0,
    "programs_dropped": 0,
    "frozen_packs": 0,
    "padded_calls": 0,
    "executions": 0,
    "lowering_seconds": 0.0,
    "compile_seconds": 0.0,
    "load_seconds": 0.0,
    "bytes_h2d": 0,
    "bytes_d2h": 0,
}


@dataclass(frozen=True, slots=True)
class CompileEvent:
    """A program that was compiled or loaded from disk: why it was needed and how long it took."""

    op: str
    signature: str
    reason: str
    seconds: float
    origin: Origin


@dataclass(frozen=True, slots=True)
class FallbackEvent:
    """An operation that ran on the CPU: why, and the Python line that issued it."""

    op: str
    reason: str
    source: str


class Metrics:
    """The counters of one process. Thread-safe; a forked child starts with its parent's values."""

    def __init__(self) -> None:
        """All zero."""
        self._lock = threading.Lock()
        after_fork_in_child(self._renew_lock)
        self._providers: list[Provider] = []
        self._baseline: list[Mapping[str, Number | Mapping[str, Number]]] = []
        # Signatures are not forgotten by a reset: what is compiled stays compiled.
        self._signatures: dict[str, deque[str]] = {}
        self._clear()

    def provide(self, provider: Provider) -> None:
        """Add what ``provider()`` gives to the counters of the same names from now on."""
        with self._lock:
            self._providers.append(provider)
            self._baseline.append({})

    def add(self, name: str, amount: Number = 1) -> None:
        """Add to one of the numbers; KeyError for a name there is none of."""
        with self._lock:
            self._numbers[name] += amount

    def record_program(self, op: str, signature: str, seconds: float, origin: Origin) -> None:
        """Note that a program had to be compiled, or was loaded from disk."""
        with self._lock:
            known = self._signatures.setdefault(op, deque(maxlen=_SIGNATURES))
            reason = reason_to_compile(signature, known)
            if signature not in known:
                known.append(signature)
            self._numbers["programs_compiled" if origin == "compiled" else "cache_hits_disk"] += 1
            self._compiles.append(CompileEvent(op, signature, reason, seconds, origin))

    def record_fallback(self, op: str, reason: str, source: str = "") -> int:
        """Note that ``op`` ran on the CPU; how often it has by now."""
        with self._lock:
            self._fallbacks[op] += 1
            self._fallback_events.append(FallbackEvent(op, reason, source))
            return self._fallbacks[op]

    def snapshot(self) -> dict[str, Any]:
        """Everything as plain dicts, lists and numbers, ready for JSON.

        The numbers by name, ``fallbacks`` (operation to count), and the last thousand
        ``compile_events`` and ``fallback_events``, oldest first.
        """
        with self._lock:
            numbers: dict[str, Number] = dict(self._numbers)
            fallbacks = Counter(self._fallbacks)
            for provider, baseline in zip(self._providers, self._baseline, strict=True):
                for name, value in _since(provider(), baseline).items():
                    if isinstance(value, Mapping):
                        fallbacks.update({key: int(count) for key, count in value.items()})
                    else:
                        numbers[name] = numbers.get(name, 0) + value
            return {
                **numbers,
                "fallbacks": {op: n for op, n in fallbacks.most_common() if n},
                "compile_events": [asdict(event) for event in self._compiles],
                "fallback_events": [asdict(event) for event in self._fallback_events],
            }

    def reset(self) -> None:
        """Start all counters and events from zero again."""
        with self._lock:
            self._baseline = [provider() for provider in self._providers]
            self._clear()

    def _clear(self) -> None:
        self._numbers = dict(_NUMBERS)
        self._fallbacks: Counter[str] = Counter()
        self._compiles: deque[CompileEvent] = deque(maxlen=_EVENTS)
        self._fallback_events: deque[FallbackEvent] = deque(maxlen=_EVENTS)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


def _since(
    now: Mapping[str, Number | Mapping[str, Number]],
    then: Mapping[str, Number | Mapping[str, Number]],
) -> dict[str, Number | dict[str, Number]]:
    passed: dict[str, Number | dict[str, Number]] = {}
    for name, value in now.items():
        before = then.get(name)
        if isinstance(value, Mapping):
            old = before if isinstance(before, Mapping) else {}
            passed[name] = {key: count - old.get(key, 0) for key, count in value.items()}
        else:
            passed[name] = value - (before if isinstance(before, int | float) else 0)
    return passed


# --- why a program was compiled ------------------------------------------------------------------


def reason_to_compile(signature: str, known: deque[str]) -> str:
    """The first difference to the most similar of the known signatures of the same operation.

    A signature is a list of fields with ``, `` between them, such as ``self f32[8, 4], dim 1``.
    """
    if not known:
        return "first use"
    fields = split_fields(signature)

    def distance(other: list[str]) -> int:
        shared = sum(a == b for a, b in zip(fields, other, strict=False))
        return max(len(fields), len(other)) - shared

    # Of equally similar ones the latest: what changed just now is what the user did.
    nearest = min((split_fields(text) for text in reversed(known)), key=distance)
    for new, old in zip(fields, nearest, strict=False):
        if new != old:
            return f"{old} became {new}"
    if len(fields) > len(nearest):
        return f"{fields[len(nearest)]} is new"
    if len(fields) < len(nearest):
        return f"{nearest[len(fields)]} is gone"
    return "no longer in memory"


def split_fields(signature: str) -> list[str]:
    """Split at the commas that stand outside brackets."""
    fields, depth, start = [], 0, 0
    for at, char in enumerate(signature):
        if char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char == "," and depth == 0:
            fields.append(signature[start:at].strip())
            start = at + 1
    return [*fields, signature[start:].strip()]


# --- the process's metrics -----------------------------------------------------------------------

METRICS = Metrics()


def metrics() -> dict[str, Any]:
    """The process's counters and events, see ``Metrics.snapshot``."""
    return METRICS.snapshot()


def reset_metrics() -> None:
    """Start the process's counters and events from zero again."""
    METRICS.reset()


def metrics_report(events: int = 10) -> str:
    """The process's metrics as a table, with the last ``events`` compilations and fallbacks."""
    values = METRICS.snapshot()
    rows = [(name.replace("_", " "), _number(name, values[name])) for name in _scalars(values)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value:>12}" for name, value in rows]
    if values["fallbacks"]:
        lines += ["", "Ran on the CPU:"]
        lines += [f"{count:>8}  {op}" for op, count in values["fallbacks"].items()]
        for event in values["fallback_events"][-events:] if events else []:
            lines.append(f"          {event['op']}: {event['reason']} {event['source']}".rstrip())
    if values["compile_events"] and events:
        lines += ["", "Last programs:"]
        for event in values["compile_events"][-events:]:
            lines.append(f"{event['seconds'] * 1e3:>8.1f} ms  {event['op']} ({event['origin']})")
            lines.append(f"             {event['reason']}")
    return "\n".join(lines)


def _scalars(values: Mapping[str, Any]) -> list[str]:
    return [name for name, value in values.items() if isinstance(value, int | float)]


def _number(name: str, value: Number) -> str:
    if name.startswith("bytes_"):
        return f"{value / 2**20:,.1f} MiB"
    return f"{value:,.3f} s" if name.endswith("_seconds") else f"{value:,}"
