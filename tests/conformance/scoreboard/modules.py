"""Rows of module_db: modules in evaluation, and in training with the gradients of their parameters."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_modules import ModuleInfo, module_db

from tests.conformance.compare import Case, apply, draws, to_device
from tests.conformance.sweep import SEED, Row, gradients, run_cases
from tests.conformance.tolerances import tolerance_of


def run(name: str, dtype: torch.dtype, limit: int, backward: bool) -> Row:
    """Run ``limit`` inputs of a module, 0 for all."""
    info = next(info for info in module_db if info.name == name)
    return run_cases(name, islice(_cases(info, dtype, backward), limit or None))


def _cases(info: ModuleInfo, dtype: torch.dtype, backward: bool) -> Iterator[Case]:
    torch.manual_seed(SEED)
    found = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=backward, training=backward
    )
    function = _train if backward else _evaluate
    for given in found:
        built = given.constructor_input
        module = info.module_cls(*built.args, **built.kwargs).to(dtype).train(backward)
        inputs = (module, given.forward_input.args, given.forward_input.kwargs)
        yield _case(info, function, inputs, tolerance_of(info, dtype))


def _case(
    info: ModuleInfo,
    function: Callable[..., Any],
    inputs: Any,
    tolerance: tuple[float, float] | None,
) -> Case:
    after = to_device(inputs, "cpu")
    expected = apply(function, after)
    return Case(
        info.name,
        function,
        inputs,
        expected,
        after,
        draws(info.name, function, inputs),
        tolerance=tolerance,
    )


def _evaluate(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        return module(*args, **kwargs)


def _train(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    results = module(*args, **kwargs)
    inputs = (args, kwargs, list(module.parameters()))
    return results, gradients(results, inputs), [buffer.clone() for buffer in module.buffers()]
