"""Rows of hop_db: higher-order operators, which need torch.compile."""

from contextlib import chdir
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.testing._internal.hop_db import hop_db

from tests.compile.test_hop_db import attempt
from tests.conformance.sweep import Row, fallbacks, gradients

ASPECT = "compiled"


def run(name: str) -> Row:
    """Compile the first sample of an operator, with its backward if it has one.

    There is no sample where PyTorch's own backend "aot_eager" fails on the CPU.
    """
    op = next(op for op in hop_db if op.full_name == name)
    before = fallbacks()
    # PyTorch's partitioner leaves a file behind where it fails.
    with TemporaryDirectory() as folder, chdir(folder):
        found = attempt(op)
        torch._dynamo.reset()
        if found != "ok" and (reason := _fails_on_cpu(op)):
            return Row(name, "no sample", 0, f"on the CPU, aot_eager: {reason}")
    torch._dynamo.reset()
    if found != "ok":
        return Row(name, "wrong" if found.startswith("AssertionError") else "error", 1, found[:300])
    fell_back = fallbacks() - before
    return Row(name, "fallback" if fell_back else "native", 1, ", ".join(sorted(fell_back)))


def _fails_on_cpu(op: Any) -> str:
    """What goes wrong with the operator's first sample on the CPU; empty if nothing does."""
    differentiable = op.supports_autograd
    sample = next(iter(op.sample_inputs_func(op, "cpu", torch.float32, differentiable)))
    inputs = (sample.input, *sample.args)
    try:
        results = torch.compile(op.op, backend="aot_eager", fullgraph=True)(
            *inputs, **sample.kwargs
        )
        gradients(results, inputs)
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.200}"
    return ""
