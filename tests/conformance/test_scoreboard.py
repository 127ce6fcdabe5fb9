"""A fixed slice of the scoreboard: what is as on the CPU, and runs on the device itself, where expected.json says so.

A row that does better than it says fails as well; `python -m tests.conformance.expected` then writes it anew.
"""

import pytest

from tests.conformance.expected import read, run_row
from tests.conformance.scoreboard.tasks import all_tasks

EXPECTED = read()
# Rows of one test: enough to be quick, few enough to be spread over processes.
_ROWS = 30


def _chunks() -> list[tuple[str, list[str]]]:
    return [
        (group, list(listed)[start : start + _ROWS])
        for group, listed in EXPECTED.items()
        for start in range(0, len(listed), _ROWS)
    ]


@pytest.mark.parametrize(("group", "names"), _chunks())
def test_rows(group: str, names: list[str]) -> None:
    problems = []
    for name in names:
        row, expected = run_row(group, name), EXPECTED[group][name]
        if row.status != expected.partition(":")[0]:
            problems.append(f"{name}: {row.status} {row.reason}, expected: {expected}")
    assert not problems, "\n".join(problems)


def test_rows_are_of_the_scoreboard() -> None:
    groups = {(f"{t.database} {t.aspect} {t.dtype}", t.op) for t in all_tasks()}
    assert {(group, op) for group, listed in EXPECTED.items() for op in listed} <= groups
