"""A fixed slice of op_db under torch.compile(backend="neuron", fullgraph=True), forward and backward, against the CPU.

compiled.json: op -> "ok", or what it comes to and why. `make conformance` runs all of it; after a change of what
compiles, `python -m tests.conformance.compiled --update` writes it anew.
"""

from collections import Counter

import pytest

from tests.conformance.compiled import all_names, differences, read, run_op, slice_of

EXPECTED = read()
# About a second each on one core.
SLICE = 120


@pytest.mark.parametrize("name", slice_of(list(EXPECTED), SLICE))
def test_op(name: str) -> None:
    problems = differences([run_op(name)], EXPECTED)
    assert not problems, problems[0]


def test_every_op_is_listed() -> None:
    assert set(EXPECTED) == set(all_names())


def test_share() -> None:
    """Of the ops that are right eagerly, at least 90 % compile, forward and backward."""
    counts = Counter(entry.partition(":")[0] for entry in EXPECTED.values())
    assert counts["ok"] >= 0.9 * (len(EXPECTED) - counts["eager"])
