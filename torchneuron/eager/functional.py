"""In-place and ``out=`` ops as functions: which op computes their values, and where the values go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

# Arguments that a functional factory has and its `out=` form lacks.
_FACTORY = frozenset({"dtype", "layout", "device", "pin_memory"})


@dataclass(frozen=True)
class Functional:
    """``op`` computes what a mutating op does.

    ``args`` are the positions, in the mutating op's arguments, of the arguments of ``op`` in its order (None for an
    argument of a factory that the ``out`` tensor decides). Of the flat outputs of ``op``, the ones from ``skip`` on
    are the new values of the arguments in ``targets``, in order; with ``skip`` None all outputs are new values.
    """

    op: OpOverload
    args: tuple[int | None, ...]
    fresh: int
    targets: tuple[int, ...]


def _writes(op: OpOverload) -> list[int]:
    return [
        i
        for i, arg in enumerate(op._schema.arguments)
        if arg.alias_info is not None and arg.alias_info.is_write
    ]


def _fresh_returns(op: OpOverload) -> int:
    return sum(1 for result in op._schema.returns if result.alias_info is None)


def _match(
    candidate: OpOverload, op: OpOverload, dropped: Sequence[int]
) -> tuple[int | None, ...] | None:
    """Positions in ``op`` of the candidate's arguments if it is its functional form."""
    positions = {arg.name: i for i, arg in enumerate(op._schema.arguments) if i not in dropped}
    result: list[int | None] = []
    for arg in candidate._schema.arguments:
        if arg.alias_info is not None and arg.alias_info.is_write:
            return None
        if arg.name in positions:
            position = positions.pop(arg.name)
            if _plain_type(arg) != _plain_type(op._schema.arguments[position]):
                return None
            result.append(position)
        elif arg.name in _FACTORY and dropped:
            result.append(None)
        else:
            return None
    return tuple(result) if not positions else None


def _plain_type(arg: Any) -> str:
    return str(arg.type).replace("Optional[", "").replace("]", "")


def _candidates(op: OpOverload) -> list[OpOverload]:
    """Overloads of the ops that may be the functional form, the most likely first."""
    namespace = getattr(torch.ops, op.namespace)
    base = op._schema.name.split("::")[1]
    names = [base]
    if base.endswith("_"):
        names = [base[:-1], f"{base[:-1]}_functional"]
    names.append(f"{base}_functional")
    found: list[OpOverload] = []
    for name in names:
        packet = getattr(namespace, name, None)
        if packet is not None:
            found += [getattr(packet, overload) for overload in packet.overloads()]
    return found


# Ops that change arguments without saying so in their schema, or whose functional form has its own convention.
_SPECIAL: dict[str, Callable[[], Functional]] = {
    "aten::native_batch_norm": lambda: Functional(
        aten._native_batch_norm_legit_functional.default, (0, 1, 2, 3, 4, 5, 6, 7), 3, (3, 4)
    ),
    "aten::native_batch_norm.out": lambda: Functional(
        aten._native_batch_norm_legit_functional.default,
        (0, 1, 2, 3, 4, 5, 6, 7),
        0,
        (8, 9, 10, 3, 4),
    ),
}


@cache
def functional_form(op: OpOverload) -> Functional | None:
    """The functional form of ``op`` (itself if it mutates nothing); None if there is none."""
    writes = _writes(op)
    count = len(op._schema.arguments)
    if not writes:
        return Functional(op, tuple(range(count)), len(op._schema.returns), ())
    outs = out_arguments(op)
    for candidate in _candidates(op):
        args = _match(candidate, op, outs if outs else ())
        if args is not None:
            # A functional form gives what the op returns first, then what it changes besides.
            changed = [i for i in writes if i not in outs]
            return Functional(candidate, args, _fresh_returns(op), (*outs, *changed))
    return None


def out_arguments(op: OpOverload) -> list[int]:
    """Positions of the ``out=`` arguments: written, and by keyword only."""
    return [i for i in _writes(op) if op._schema.arguments[i].kwarg_only]


def special_form(name: str) -> Functional | None:
    """The functional form of an op that mutates in secret."""
    make = _SPECIAL.get(name)
    return make() if make is not None else None
