"""What is checked where a result may be rounded otherwise than the CPU's."""

from typing import Any

import pytest
import torch

from tests.conformance.compare import Case, judge
from tests.conformance.differences import Difference, Kind

ROUNDING = {"op": Difference(Kind.ROUNDING, "a test")}
UNIT = 2.0**-10  # of a float16 between 1 and 2


def case_of(expected: float, after: float = 1.0, exact: float = 1.0) -> Case:
    """An op that gives ``exact``, in float16, of which the CPU makes ``expected``."""
    one = torch.ones(1, dtype=torch.float16)
    return Case(
        op="op",
        function=lambda x: x * exact,
        inputs=(one, (), {}),
        expected=one * expected,
        after=(one * after, (), {}),
        random=False,
    )


def inputs(value: float) -> Any:
    return torch.full((1,), value, dtype=torch.float16), (), {}


def verdict(units: float, of_the_cpu: float, differences: dict[str, Difference]) -> bool:
    """Whether a result so many units off is right, beside one of the CPU's."""
    result = torch.full((1,), 1 + units * UNIT, dtype=torch.float16)
    return judge(case_of(1 + of_the_cpu * UNIT), result, inputs(1.0), differences) == ""


@pytest.mark.parametrize(
    ("units", "of_the_cpu", "right"),
    [(0, 8, True), (1, 8, True), (8, 8, True), (8, 11, True), (11, 8, False), (3, 0, False)],
)
def test_no_less_exact_than_the_cpu(units: float, of_the_cpu: float, right: bool) -> None:
    assert verdict(units, of_the_cpu, ROUNDING) is right


@pytest.mark.parametrize(("units", "right"), [(1.2, True), (1.3, False)])
def test_half_a_unit_is_chance(units: float, right: bool) -> None:
    """2 units below 1, beside the CPU's 4 above: 3.2 and 2.8 units off are the same but for the last rounding."""
    case = case_of(1 + 4 * UNIT, exact=1 + units * UNIT)
    result = torch.full((1,), 1 - 2 * UNIT, dtype=torch.float16)
    assert (judge(case, result, inputs(1.0), ROUNDING) == "") is right


def test_only_where_it_is_listed() -> None:
    assert not verdict(1, 8, {})


def test_inputs_after_the_call() -> None:
    case = case_of(1.0, after=1 + 8 * UNIT)
    result = torch.ones(1, dtype=torch.float16)
    assert judge(case, result, inputs(1.0), ROUNDING) == ""
    assert judge(case, result, inputs(1 + 20 * UNIT), ROUNDING).startswith("inputs after")
    assert judge(case, result, inputs(1.0), {}).startswith("inputs after")


def test_a_number_where_there_is_none() -> None:
    case = case_of(float("nan"))
    assert judge(case, torch.full((1,), torch.nan, dtype=torch.float16), inputs(1.0), {}) == ""
    assert judge(case_of(1.0), torch.full((1,), torch.nan), inputs(1.0), ROUNDING) != ""
