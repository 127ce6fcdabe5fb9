"""Resolves a call without a program: composite, resize, CPU fallback, or a program from the caches or the compiler."""

from collections.abc import Sequence
from typing import Any

import torch

from torchneuron import _C
from torchneuron.eager import checks, composites
from torchneuron.eager.calls import Call, overload_of
from torchneuron.eager.fallback import announce, user_line
from torchneuron.eager.functional import Functional, functional_form, out_arguments, special_form
from torchneuron.eager.plan import Built, build, infer
from torchneuron.lowering.dtypes import from_text
from torchneuron.lowering.errors import LoweringError
from torchneuron.program.session import compile_flags, compiler, toolchain


def resolve(
    name: str,
    args: tuple[Any, ...],
    tensors: Sequence[Any],
    scalars: Sequence[Any],
    key: bytes,
    device: int,
) -> dict[str, Any]:
    """The plan for a call, as the core's ``entry_from`` reads it.

    Raises what PyTorch raises for the call on wrong arguments; NotImplementedError for an op that may not fall back.
    """
    call = Call(overload_of(name), args, tensors, scalars, device)
    checks.check(call)
    composite = composites.find(call)
    if composite is not None:
        return {"kind": "composite", "function": composite}
    form = _form(name, call)
    if form is None:
        return _fall_back(name, "it has no functional form")
    try:
        return _resize(call, form) or _program(name, call, form, key)
    except LoweringError as error:
        reason = str(error)
        _release_frames(error)
    return _fall_back(name, reason)


def _release_frames(error: BaseException | None) -> None:
    """Drop the tracebacks: their frames lead to the caller's, whose tensors must not live on."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _form(name: str, call: Call) -> Functional | None:
    special = special_form(name)
    if special is not None and composites.mutates_in_secret(call):
        return special
    return functional_form(call.op)


def _program(name: str, call: Call, form: Functional, key: bytes) -> dict[str, Any]:
    built: list[Built] = []

    def lower() -> Built:
        built.append(build(call, form))
        return built[0]

    signature = name.encode() + b"\0" + key
    program = compiler().compile_program(
        toolchain().parts(signature),
        lower,
        {},
        _C.ordinal(call.device),
        op=name,
        signature=call.text(),
        graph=lambda: built[0].graph if built else "",
        flags=compile_flags(),
    )
    return {**_plan(call, program.executable, program.metadata), "module": program.stablehlo}


def _fall_back(name: str, reason: str) -> dict[str, Any]:
    announce(name, reason)
    return {"kind": "fallback"}


def _plan(call: Call, executable: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    plan: dict[str, Any] = metadata["plan"]
    return {
        "kind": "program",
        "executable": executable,
        "label": call.text(),
        "origin": user_line(),
        "operands": [tuple(item) for item in plan["operands"]],
        "outputs": [{**item, "dtype": from_text(item["dtype"])} for item in plan["outputs"]],
        "returns": [tuple(item) for item in plan["returns"]],
        "donatable": plan["donatable"],
        "rng_offset": metadata["rng_offset"],
        "bounded": plan["bounded"],
    }


def _resize(call: Call, form: Functional) -> dict[str, Any] | None:
    """The first ``out=`` tensor that must take other sizes before the program can be known."""
    if not out_arguments(call.op):
        return None
    outputs = infer(call, form)
    for target, output in zip(form.targets, outputs[form.fresh :], strict=True):
        argument = call.args[target]
        if not isinstance(argument, _C.TensorArgument) or not isinstance(output, torch.Tensor):
            continue
        if list(output.shape) != list(call.tensors[argument.index].sizes):
            return {"kind": "resize", "tensor": argument.index, "sizes": list(output.shape)}
    return None
