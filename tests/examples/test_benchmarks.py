from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import _harness
import eager
import pytest
import torch
import warm_process
from _harness import Case, Limit, Results


def test_geometric_mean() -> None:
    assert _harness.geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert math.isnan(_harness.geometric_mean([]))


def test_paired_measures_both_sides() -> None:
    case = _harness.paired(
        "sleep",
        "group",
        ours=lambda: time.sleep(0.002),
        peer=lambda: time.sleep(0.0005),
        settle=lambda: None,
        rounds=3,
        round_seconds=0.005,
    )
    assert case.ours_s >= 0.002
    assert case.peer_s >= 0.0005
    assert 1.2 < case.ratio < 4.5


def test_settling_is_part_of_our_time() -> None:
    once = _harness.seconds_per_operation(lambda: None, lambda: time.sleep(0.02), loops=2)
    assert once >= 0.01


def results() -> Results:
    cases = [
        Case("one", "small", 2e-6, 1e-6, 2.0),
        Case("two", "small", 1e-6, 2e-6, 0.5),
        Case("three", "new", 0.05, 1e-6, 5e4),
    ]
    limits = [Limit("small", "geomean", 1.6), Limit("new", "worst_ms", 40.0, "ms")]
    return Results("sample", "neuron", cases, ("small",), limits)


def test_json_has_cases_and_means(tmp_path: Path) -> None:
    options = argparse.Namespace(json=tmp_path / "out.json", check=True)
    assert _harness.finish(results(), options) == 1
    written = json.loads(options.json.read_text())
    assert written["geometric_mean"] == pytest.approx(1.0)
    assert written["geometric_means"]["new"] == pytest.approx(5e4)
    first = written["cases"][0]
    assert first["ours"] == "neuron"
    assert first["peer"] == "cpu"
    assert (first["ours_s"], first["peer_s"], first["ratio"]) == (2e-6, 1e-6, 2.0)
    assert [limit["kept"] for limit in written["limits"]] == [True, False]


def test_table_tells_what_was_missed() -> None:
    table = results().table()
    assert "2.00 µs" in table
    assert "50.00 ms" in table
    assert "MISSED" in table
    assert not results().kept()


def test_operators_give_the_cpu_values(device: str) -> None:
    for shape in ((2, 4), (16, 64)):
        on_cpu = eager.Inputs(shape, seed=1)
        on_device = on_cpu.to(device)
        for name, call in eager.OPERATORS.items():
            expected = call(on_cpu)()
            torch.testing.assert_close(call(on_device)().cpu(), expected, msg=name)


def test_first_calls_meet_signatures_once(device: str) -> None:
    outcome = eager.first_calls(device, seed=0)
    expected = sum(len(eager.new_shapes(index)) for index in range(len(eager.OPERATORS)))
    assert len(outcome["calls"]) == expected
    counts = outcome["counts"]
    # A copy of a whole tensor needs no program: the two then share one value.
    programs = expected - len(eager.new_shapes(list(eager.OPERATORS).index("copy")))
    assert counts["programs_compiled"] + counts["cache_hits_disk"] >= programs


def test_first_step_reports_its_parts(device: str) -> None:
    outcome = warm_process.first_step(device, time.monotonic())
    times = outcome["times"]
    assert 0 < times["imported"] < times["built"] < times["ready"]
    assert outcome["metrics"]["executions"] > 0
    assert math.isfinite(outcome["loss"])
