"""A slice of PyTorch's op_db on the device: all as on the CPU, and on the device itself where expected.json says so.

expected.json: dtype -> family -> op -> "native", or "fallback: " and the reason. After a change of what runs natively,
`python -m tests.conformance.expected` writes it anew.
"""

import pytest
import torch

from tests.conformance.expected import BACKWARD, read
from tests.conformance.sweep import ops, run_op

EXPECTED = read()


@pytest.mark.parametrize(
    ("dtype", "family"),
    [(dtype, family) for dtype, families in EXPECTED.items() for family in families],
)
def test_family(dtype: str, family: str) -> None:
    problems = []
    for name, expected in EXPECTED[dtype][family].items():
        row = run_op(ops()[name], getattr(torch, dtype), 1, backward=dtype in BACKWARD)
        if row.status != expected.partition(":")[0]:
            problems.append(f"{name}: {row.status} {row.reason}, expected: {expected}")
    assert not problems, "\n".join(problems)
