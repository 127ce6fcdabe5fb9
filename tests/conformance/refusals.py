"""Writes torchneuron/eager/refusals.json: the dtypes that PyTorch's CPU kernels refuse.

    python -m tests.conformance.refusals [--ops REGEX] [--samples 12]

The samples of PyTorch's op_db are run on the CPU in every dtype that it knows, forward and backward. Every ATen op that
they reach is run again with its tensors (and its numbers and dtypes) turned into each other dtype: in its functional
form, and where that is refused in its in-place and ``out=`` forms. What the CPU refuses with a message about dtypes is
written down, unless it computed the same in any other call. Nor is what CUDA computes by what op_db says of it: code
that takes one road on a CPU and CUDA's elsewhere must run, as transformers' experts do for a histogram of integers.
Calls with tensors of no elements say nothing: many kernels refuse only when there is something to compute.
"""

import argparse
import json
import re
import signal
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchneuron.eager import refusals
from torchneuron.eager.calls import short
from torchneuron.eager.functional import functional_form, out_arguments

DTYPES = tuple(refusals.CXX_NAMES)
# The dtypes whose calls are run again in the others: most ops take one of them.
_BASES = (torch.float32, torch.int64, torch.complex64)
_ENTRIES = frozenset(info.aten_name for info in op_db)
_CALLS_PER_KEY = 2
_MOST_ELEMENTS = 20_000
_SECONDS = 30
# A refusal speaks of dtypes, and not of what the dtype made of the values or the shapes.
_OF_DTYPES = re.compile(
    r"not (yet )?implemented for|dtype|complex|bool|float|integ|\blong\b|scalar ?type|(index|input) type",
    re.IGNORECASE,
)
_OF_VALUES = re.compile(r"overflow|out of bounds|limits|shape|ZeroDivision|singular|negative|\{\[")


class Refusal(NamedTuple):
    """What a call raised, in terms of the dtype that it was turned into."""

    error: str
    message: str
    pattern: str
    dtype: torch.dtype


class Evidence:
    """What the CPU computed and refused so far: keys of functional calls, by op; and the dtypes that CUDA
    computes beyond the CPU, in the op's own entry or, if it has none, in one that reaches it.
    """

    def __init__(self) -> None:
        self.accepted: dict[OpOverload, set[str]] = defaultdict(set)
        self.refused: dict[OpOverload, dict[str, Refusal]] = defaultdict(dict)
        self.elsewhere: dict[OpOverload, set[torch.dtype]] = defaultdict(set)

    def rows(self, op: OpOverload) -> list[Refusal]:
        """The refusals of an op that nothing speaks against.

        One holds for tensors of any number of dimensions, unless the CPU computes the call for some.
        """
        accepted = {refusals.any_dimensions(key) for key in self.accepted[op]}
        result = {}
        for key, refusal in self.refused[op].items():
            if refusal.dtype in self.elsewhere[op]:
                continue
            if refusals.any_dimensions(key) not in accepted:
                pattern = refusals.any_dimensions(refusal.pattern)
                result[refusals.any_dimensions(key)] = refusal._replace(pattern=pattern)
            elif key not in self.accepted[op]:
                result[key] = refusal
        return list(result.values())


def complete(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """All arguments in the order of the schema."""
    given = dict(zip((argument.name for argument in op._schema.arguments), args, strict=False))
    given.update(kwargs)
    return [given.get(argument.name, argument.default_value) for argument in op._schema.arguments]


def run(op: OpOverload, values: Sequence[Any]) -> Any:
    """Call ``op`` with all of its arguments."""
    arguments = list(zip(op._schema.arguments, values, strict=True))
    args = [value for argument, value in arguments if not argument.kwarg_only]
    return op(
        *args, **{argument.name: value for argument, value in arguments if argument.kwarg_only}
    )


def turned(
    op: OpOverload,
    values: Sequence[Any],
    base: torch.dtype,
    dtype: torch.dtype,
    dtypes: bool,
    numbers: bool,
) -> list[Any]:
    """Copies of the arguments with every tensor of ``base`` in ``dtype``, and if asked dtypes, and numbers' kinds."""
    kind = refusals.number_kind(dtype)

    def turn(value: Any, expected: str) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().to(dtype if value.dtype is base else value.dtype, copy=True)
        if isinstance(value, list | tuple):
            return [turn(item, expected) for item in value]
        if dtypes and "ScalarType" in expected and value in (base, None):
            return dtype
        if numbers and isinstance(value, bool | int | float) and "number" in expected:
            return kind(value)
        return value

    types = (str(argument.real_type) for argument in op._schema.arguments)
    return [turn(value, expected) for value, expected in zip(values, types, strict=True)]


def pattern_of(before: str, after: str, base: torch.dtype) -> str:
    """The key ``after`` a change of dtype with a T where ``base`` was and an N where a number changed its kind."""
    name, kinds = short(base), ("bool", "int", "float", "complex")
    result = []
    for old, new in zip(before.split(), after.split(), strict=True):
        if old in kinds and new in kinds:
            result.append(new if old == new else "N")
        else:
            result.append("T" if old == "-" != new else re.sub(rf"\b{name}\b", "T", old))
    return " ".join(result)


@cache
def taken_apart(op: OpOverload) -> bool:
    """Whether the device sees ops that this one is composed of, other than the CPU's dispatcher shows."""
    keys = torch._C.DispatchKey
    return op.has_kernel_for_dispatch_key(keys.CompositeExplicitAutograd) and not any(
        op.has_kernel_for_dispatch_key(key) for key in (keys.CPU, keys.PrivateUse1)
    )


@cache
def mutating_forms(op: OpOverload) -> list[OpOverload]:
    """The in-place and ``out=`` forms of a functional op."""
    base = op._schema.name.split("::")[1]
    packets = [getattr(getattr(torch.ops, op.namespace), name, None) for name in (base, f"{base}_")]
    forms = [
        getattr(packet, overload)
        for packet in packets
        if packet is not None
        for overload in packet.overloads()
    ]
    return [form for form in forms if form is not op and _is_form(form, op)]


def _is_form(form: OpOverload, op: OpOverload) -> bool:
    found = functional_form(form)
    return found is not None and found.op is op


class Recorder(TorchDispatchMode):
    """Collects evidence from every ATen op that runs under it; ``base`` is turned into the other dtypes."""

    def __init__(
        self,
        evidence: Evidence,
        base: torch.dtype,
        calls: Counter[tuple[OpOverload, str]],
        info: OpInfo,
    ) -> None:
        super().__init__()
        self.evidence, self.base, self.calls = evidence, base, calls
        self.entry = info.aten_name
        self.elsewhere = set(info.supported_dtypes("cuda")) - set(info.supported_dtypes("cpu"))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        values = complete(func, args, kwargs or {})
        tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        if (
            func.namespace != "aten"
            or func.is_view
            or any(t.layout is not torch.strided or not t.numel() for t in tensors)
        ):
            return func(*args, **(kwargs or {}))
        op, values = refusals.functional(func, values)
        name = op._schema.name.removeprefix("aten::")
        if name == self.entry or name not in _ENTRIES:
            self.evidence.elsewhere[op] |= self.elsewhere
        found = refusals.key(op, values)
        count = self.calls[op, found]
        if (
            self.base in _BASES
            and count < _CALLS_PER_KEY
            and sum(tensor.numel() for tensor in tensors) < _MOST_ELEMENTS
        ):
            self.calls[op, found] += 1
            self._turn(op, values)
        if taken_apart(func):
            with self:
                composed = torch._C.DispatchKey.CompositeExplicitAutograd
                result = func._op_dk(composed, *args, **(kwargs or {}))
        else:
            result = func(*args, **(kwargs or {}))
        self.evidence.accepted[op].add(found)
        return result

    def _turn(self, op: OpOverload, values: Sequence[Any]) -> None:
        before = refusals.key(op, values)
        tried = {before}
        for dtype in DTYPES:
            for dtypes, numbers in ((False, False), (True, False), (True, True)):
                try:
                    changed = turned(op, values, self.base, dtype, dtypes, numbers)
                except (TypeError, ValueError, OverflowError):
                    continue
                key = refusals.key(op, changed)
                if key not in tried:
                    tried.add(key)
                    pattern = pattern_of(before, key, self.base)
                    self._try(op, changed, key, pattern, dtype)

    def _try(
        self, op: OpOverload, values: Sequence[Any], key: str, pattern: str, dtype: torch.dtype
    ) -> None:
        accepted, refused = self.evidence.accepted[op], self.evidence.refused[op]
        try:
            run(op, [_copy(value) for value in values])
        except Exception as error:
            found = _refusal(error, pattern, dtype)
            if found is None or key in refused:
                return
            if self._another_form_runs(op, values):
                accepted.add(key)
            elif (
                refusals.expand(pattern, dtype) == key
            ):  # else a list's, which a pattern cannot say
                refused[key] = found
        else:
            accepted.add(key)

    @staticmethod
    def _another_form_runs(op: OpOverload, values: Sequence[Any]) -> bool:
        """Whether the CPU computes the call in place, or with some dtype of ``out=``."""
        given = dict(zip((argument.name for argument in op._schema.arguments), values, strict=True))
        for form in mutating_forms(op):
            outs = out_arguments(form)
            # The form of a factory has no `dtype`: what it writes to decides.
            decided = [given["dtype"]] if None in functional_form(form).args else DTYPES
            for out_dtype in decided if outs else DTYPES[:1]:
                arguments = [
                    torch.empty(0, dtype=out_dtype)
                    if position in outs
                    else _copy(given.get(argument.name, argument.default_value))
                    for position, argument in enumerate(form._schema.arguments)
                ]
                with suppress(Exception):
                    run(form, arguments)
                    return True
        return False


def _refusal(error: Exception, pattern: str, dtype: torch.dtype) -> Refusal | None:
    message, name = str(error).split("\nException raised")[0], type(error).__name__
    if name not in refusals.ERRORS or not _OF_DTYPES.search(message) or _OF_VALUES.search(message):
        return None
    message = re.sub(rf"\b{refusals.CXX_NAMES[dtype]}\b", "{T}", message)
    return Refusal(name, message, pattern, dtype)


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


class TooLong(BaseException):
    """A sample's time is over; nothing that suppresses exceptions may catch it."""


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def observe(
    info: OpInfo, count: int, evidence: Evidence, calls: Counter[tuple[OpOverload, str]]
) -> None:
    """Run ``count`` samples of each dtype that ``info`` knows, with the gradients of what they give."""
    for dtype in DTYPES:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        recorder = Recorder(evidence, dtype, calls, info)
        differentiable = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
        samples = iter(info.sample_inputs("cpu", dtype, requires_grad=differentiable))
        for _ in range(count):
            with suppress(Exception, TooLong), _limited(_SECONDS):
                sample = next(samples, None)
                if sample is None:
                    break
                _run_sample(info, sample, recorder)


def _run_sample(info: OpInfo, sample: SampleInput, recorder: Recorder) -> None:
    with recorder:
        results = info.op(sample.input, *sample.args, **sample.kwargs)
        totals = [
            leaf
            for leaf in tree_leaves(results)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        torch.autograd.backward(totals, [torch.ones_like(total) for total in totals])


def table(evidence: Evidence) -> dict[str, list[list[str]]]:
    """Op -> rows of error, message, pattern of keys, and the dtypes that the pattern stands for."""
    result = {}
    for op in sorted(evidence.refused, key=str):
        grouped: dict[tuple[str, str, str], list[torch.dtype]] = defaultdict(list)
        for error, message, pattern, dtype in evidence.rows(op):
            grouped[error, message, pattern].append(dtype)
        if grouped:
            result[str(op)] = [
                [*row, " ".join(short(dtype) for dtype in DTYPES if dtype in grouped[row])]
                for row in sorted(grouped)
            ]
    return result


def text(rows: dict[str, list[list[str]]]) -> str:
    """The table as JSON, a row on each line."""
    ops = (
        f"{json.dumps(op)}: [\n  " + ",\n  ".join(map(json.dumps, found)) + "\n]"
        for op, found in rows.items()
    )
    return "{\n" + ",\n".join(ops) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", default="", help="print the rows of what these entries reach")
    parser.add_argument("--samples", type=int, default=12)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    evidence, calls = Evidence(), Counter[tuple[OpOverload, str]]()
    for info in op_db:
        if re.search(options.ops, info.name):
            print(info.formatted_name, end="\r", file=sys.stderr)
            observe(info, options.samples, evidence, calls)
    rows = table(evidence)
    if options.ops:
        print(text(rows), end="")
        return
    refusals.TABLE.write_text(text(rows))
    print(f"{len(rows)} operators in {Path(refusals.TABLE).name}")


if __name__ == "__main__":
    main()
