"""Rows of hop_db: higher-order operators, which need torch.compile."""

from contextlib import chdir
from tempfile import TemporaryDirectory

import torch
from torch.testing._internal.hop_db import hop_db

from tests.compile.test_hop_db import attempt
from tests.conformance.sweep import Row, fallbacks

ASPECT = "compiled"


def run(name: str) -> Row:
    """Compile the first sample of an operator, with its backward if it has one."""
    op = next(op for op in hop_db if op.full_name == name)
    before = fallbacks()
    # PyTorch's partitioner leaves a file behind where it fails.
    with TemporaryDirectory() as folder, chdir(folder):
        found = attempt(op)
    torch._dynamo.reset()
    if found != "ok":
        return Row(name, "wrong" if found.startswith("AssertionError") else "error", 1, found[:300])
    fell_back = fallbacks() - before
    return Row(name, "fallback" if fell_back else "native", 1, ", ".join(sorted(fell_back)))
