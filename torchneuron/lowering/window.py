"""``fuse``: the programs of a stretch of ops, one after the other, as one StableHLO module."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchneuron.lowering import mlir

# A step's operand: (step, output) of an earlier step, or (-1, number) of a value from outside.
Source = tuple[int, int]

# What XLA simplifies to something that is equal in real numbers only: what computes a value, and
# what uses it.
_SIMPLIFIED = {
    "exponential": {"multiply", "divide", "log", "power"},
    "power": {"log", "power", "divide", "sqrt", "rsqrt"},
    "sqrt": {"multiply", "divide", "log"},
    "rsqrt": {"multiply", "divide", "log"},
    "divide": {"divide"},
    "multiply": {"sqrt", "rsqrt"},
    "constant": {"reduce", "add", "divide", "power"},
    "broadcast_in_dim": {"reduce"},
    "concatenate": {"reduce"},
    "reduce": {"reduce"},
}
_OPERATION = re.compile(r"\bstablehlo\.(\w+)")


@dataclass(frozen=True)
class Stretch:
    """Programs and how values flow between them.

    ``modules`` are portable artifacts with one public function ``main`` each, ``steps`` are
    (number of a module, operands), ``outputs`` are (step, output) pairs, the results in order.
    """

    modules: tuple[bytes, ...]
    steps: tuple[tuple[int, tuple[Source, ...]], ...]
    outside: int
    outputs: tuple[tuple[int, int], ...]

    def key(self) -> bytes:
        """What tells it apart from all other stretches."""
        total = hashlib.sha256(repr((self.steps, self.outside, self.outputs)).encode())
        for module in self.modules:
            total.update(hashlib.sha256(module).digest())
        return b"window\0" + total.digest()


@dataclass(frozen=True)
class Fused:
    """A module, and which of its parameters (values from outside) may alias a result."""

    module: bytes
    donatable: tuple[int, ...]
    reduces_rows: bool
    rng_offset: int = 0
    # The compiler's, for this module; who compiles it knows them.
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def roads(self) -> dict[str, str]:
        """None of its own: each step has taken its road before."""
        return {}

    @property
    def metadata(self) -> dict[str, Any]:
        """What the core needs besides the executable."""
        return {"donatable": list(self.donatable)}


def fuse(stretch: Stretch) -> Fused:
    """One module whose parameters are the values from outside and whose results are ``outputs``.

    A step that may overwrite an operand passes that on: where the operand came, through steps of
    that kind, from outside, and the step's result is an output, the two share memory.

    XLA simplifies as in real numbers, ``log(exp(x))`` to ``x`` and ``exp(x) * exp(y)`` to
    ``exp(x + y)``: within one op that is strict mode's result too, from one to the next it would be
    another one. So values go through a barrier there. It is gone when XLA makes loops, which still
    reach over many steps.
    """
    functions = [mlir.function(module, f"program{i}") for i, module in enumerate(stretch.modules)]
    aliases = _aliases(stretch, functions)
    inlined = mlir.inline(_text(stretch, functions, aliases))
    return Fused(inlined.artifact, tuple(sorted(aliases)), inlined.reduces_rows)


def _aliases(stretch: Stretch, functions: Sequence[mlir.Function]) -> dict[int, int]:
    """Output number by parameter number."""
    origin: dict[Source, int] = {}  # a step's output -> the value from outside it is the update of
    for number, (program, operands) in enumerate(stretch.steps):
        for parameter, output in functions[program].aliases.items():
            source = operands[parameter]
            outside = source[1] if source[0] < 0 else origin.get(source)
            if outside is not None:
                origin[number, output] = outside
    result: dict[int, int] = {}
    for number, place in enumerate(stretch.outputs):
        if place in origin:
            result[origin[place]] = number  # the last update of a storage
    return result


def _text(stretch: Stretch, functions: Sequence[mlir.Function], aliases: dict[int, int]) -> str:
    types: list[str] = [""] * stretch.outside
    behind = _behind_barriers(stretch, functions)
    barred = set().union(*behind)
    body = []
    for number, (program, operands) in enumerate(stretch.steps):
        function = functions[program]
        for (step, index), type_ in zip(operands, function.parameters, strict=True):
            if step < 0:
                types[index] = type_
        names = ", ".join(_name(source, source in behind[number]) for source in operands)
        body.append(
            f"%s{number}:{len(function.results)} = func.call @{function.name}({names}) : "
            f"({', '.join(function.parameters)}) -> ({', '.join(function.results)})"
        )
        body += [
            f"%b{number}_{i} = stablehlo.optimization_barrier %s{number}#{i} : {type_}"
            for i, type_ in enumerate(function.results)
            if (number, i) in barred
        ]
    parameters = [
        f"%o{i}: {type_}"
        + (f" {{tf.aliasing_output = {aliases[i]} : i32}}" if i in aliases else "")
        for i, type_ in enumerate(types)
    ]
    results = ", ".join(functions[stretch.steps[s][0]].results[o] for s, o in stretch.outputs)
    values = ", ".join(_name(place) for place in stretch.outputs)
    body.append(f"return {values} : {results}" if values else "return")
    main = (
        f"func.func public @main({', '.join(parameters)}) -> ({results}) {{\n"
        + "\n".join(body)
        + "\n}\n"
    )
    return "module @torchneuron {\n" + main + "\n".join(f.text for f in functions) + "\n}\n"


def _behind_barriers(stretch: Stretch, functions: Sequence[mlir.Function]) -> list[set[Source]]:
    """For each step, the operands that XLA is not to simplify the step with."""
    used = [set(_OPERATION.findall(function.text)) for function in functions]
    return [
        {
            (step, index)
            for step, index in operands
            if step >= 0
            and any(
                used[program] & _SIMPLIFIED.get(origin.removeprefix("stablehlo."), set())
                for origin in functions[stretch.steps[step][0]].origins[index]
            )
        }
        for program, operands in stretch.steps
    ]


def _name(source: Source, behind_barrier: bool = False) -> str:
    step, index = source
    if behind_barrier:
        return f"%b{step}_{index}"
    return f"%o{index}" if step < 0 else f"%s{step}#{index}"
