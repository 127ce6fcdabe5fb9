"""Rows of optim_db: three steps of an optimizer, one parameter at a time, on lists, and fused."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput, optim_db

from tests.conformance.compare import Case, apply, to_device
from tests.conformance.sweep import Row, run_cases

_FLAGS = {"one by one": None, "foreach": "foreach", "fused": "fused"}
# One of an optimizer that calls the closure many times itself.
_STEPS = 3


def ways(info: OptimizerInfo) -> list[str]:
    """In which ways the optimizer can step."""
    return [way for way, flag in _FLAGS.items() if flag is None or flag in info.supported_impls]


def run(name: str, way: str, limit: int) -> Row:
    """Run ``limit`` configurations of an optimizer, 0 for all."""
    info = next(info for info in optim_db if info.name == name)
    return run_cases(name, islice(_cases(info, way), limit or None))


def _cases(info: OptimizerInfo, way: str) -> Iterator[Case]:
    for configuration in info.optim_inputs_func(device="cpu"):
        if configuration.kwargs.get("capturable"):
            # Of CUDA graphs: the CPU, which we compare with, refuses it.
            continue
        function = _steps(info, configuration, way)
        generator = torch.Generator().manual_seed(0)
        # Muon takes matrices only.
        shapes = ((4, 3), (5, 2)) if info.name == "Muon" else ((4, 3), (5,))
        parameters = [torch.randn(shape, generator=generator) for shape in shapes]
        inputs = (parameters, (), {})
        after = to_device(inputs, "cpu")
        yield Case(info.name, function, inputs, apply(function, after), after, False)


def _steps(
    info: OptimizerInfo, configuration: OptimizerInput, way: str
) -> Callable[[list[torch.Tensor]], Any]:
    flags = {flag: flag == _FLAGS[way] for flag in _FLAGS.values() if flag in info.supported_impls}
    if flags.get("fused"):
        flags.pop("foreach", None)

    def run(parameters: list[torch.Tensor]) -> Any:
        parameters = [parameter.requires_grad_() for parameter in parameters]
        optimizer = info.optim_cls(parameters, **{**configuration.kwargs, **flags})
        for _ in range(1 if info.step_requires_closure else _STEPS):
            optimizer.step(lambda: _loss(info, optimizer, parameters))
        results = [p.detach().clone() for p in parameters]
        # What LBFGS keeps after twenty steps are ratios of differences as small as their rounding errors.
        return results if info.step_requires_closure else (results, _state(optimizer))

    return run


def _loss(
    info: OptimizerInfo, optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = sum(((p - 1) ** 2 * _curvature(p)).mean() for p in parameters)
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    if info.only_supports_sparse_grads:
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad = parameter.grad.to_sparse()
    return loss


def _curvature(parameter: torch.Tensor) -> torch.Tensor:
    """Another one along each axis: LBFGS would solve a loss of one curvature at once."""
    weights = torch.linspace(1, 9, parameter.numel()).reshape(parameter.shape)
    return weights.to(parameter.device)


def _state(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What the optimizer keeps of each parameter, on whichever device it keeps it."""
    return [
        value.detach().cpu()
        for entry in optimizer.state_dict()["state"].values()
        for value in entry.values()
        if isinstance(value, torch.Tensor)
    ]
