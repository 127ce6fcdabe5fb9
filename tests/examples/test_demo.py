from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import demo
import pytest
import readme_figures
import torch
from _jobs import Counters, JobResult, fell_back
from rich.console import Console


def module_that(name: str, run: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(TITLE=f"title of {name}", run=run)
    return module


@pytest.fixture
def two_jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-ins for the real jobs: one computes a sum on the device, one raises."""

    def add(device: str, progress: Any) -> JobResult:
        progress(0.5, "adding")
        total = (torch.ones(5, device=device) + 1).sum().item()
        return JobResult("x", "adds", total == 10, f"sum {total}", 0.1, {"total": total})

    def fail(device: str, progress: Any) -> JobResult:
        raise ValueError(f"nothing works on {device}")

    monkeypatch.setitem(sys.modules, "job_that_adds", module_that("job_that_adds", add))
    monkeypatch.setitem(sys.modules, "job_that_fails", module_that("job_that_fails", fail))
    monkeypatch.setattr(demo, "JOBS", {"x": "job_that_adds", "y": "job_that_fails"})
    return ["x", "y"]


def printed(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_rows_carry_results_and_counters(device: str, two_jobs: list[str]) -> None:
    console = Console(file=io.StringIO(), width=160)
    adds, fails = demo.run(device, two_jobs, console)
    assert adds.result.passed
    assert adds.error is None
    assert adds.counters is not None
    assert adds.counters["executions"] > 0
    assert not fails.result.passed
    assert fails.result.result == f"ValueError: nothing works on {device}"
    assert "job_that_fails" not in printed(demo.closing_table([adds], device))
    assert fails.error is not None
    assert "Traceback" in fails.error
    table = printed(demo.closing_table([adds, fails], device))
    assert "✓ sum 10.0" in table
    assert "✗ ValueError" in table


def test_exit_code_and_json(
    device: str, two_jobs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = tmp_path / "demo.json"
    for letters, code in (("x", 0), ("x,y", 1)):
        arguments = ["demo.py", "--device", device, "--jobs", letters, "--json", str(figures)]
        monkeypatch.setattr(sys, "argv", arguments)
        assert demo.main() == code
        outcome = json.loads(figures.read_text())
        assert outcome["passed"] is (code == 0)
        assert [job["job"] for job in outcome["jobs"]] == letters.split(",")


def test_columns_without_counters_show_a_dash() -> None:
    row = demo.Row(JobResult("a", "title", True, "fine", 1.0), None)
    assert row.counts() == ("-", "-", "-", "-")


def test_fallbacks_are_named() -> None:
    counters = {
        "programs_compiled": 1200,
        "cache_hits_memory": 7,
        "cache_hits_disk": 3,
        "executions": 10,
        "fallbacks": {"aten::svd": 2},
    }
    row = demo.Row(JobResult("a", "title", True, "fine", 1.0), counters)
    assert row.counts() == ("1,200", "7 / 3", "10", "aten::svd 2")
    assert fell_back(counters)
    assert not fell_back(counters | {"fallbacks": {}})
    assert not fell_back(None)


def test_unknown_jobs_are_refused() -> None:
    assert demo.parse_jobs("a, d") == ["a", "d"]
    for text in ("a,z", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="choose from"):
            demo.parse_jobs(text)


def test_counters_count_from_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"programs_compiled": 5, "cache_hits_disk": 1, "fallbacks": {"a": 2, "b": 1}}
    module = SimpleNamespace(metrics=lambda: values)
    monkeypatch.setattr("torch.get_device_module", lambda device: module)
    counters = Counters(torch.device("cpu"))
    values = {"programs_compiled": 8, "cache_hits_disk": 3, "fallbacks": {"a": 2, "b": 4}}
    assert counters.read() == {
        "programs_compiled": 3,
        "cache_hits_disk": 2,
        "fallbacks": {"b": 3},
    }
    assert counters.new_programs() == 5


def test_readme_table_goes_between_the_markers() -> None:
    outcome = {
        "device": "neuron",
        "torch": "2.13.0",
        "python": "3.11",
        "jobs": [
            {
                "job": "a",
                "title": "a title",
                "passed": False,
                "result": "one | two\nthree",
                "seconds": 1.25,
                "counters": None,
            }
        ],
    }
    table = readme_figures.markdown(outcome)
    assert "| (a) a title | **missed:** one \\| two three | 1.2 s | - | - | - | - |" in table
    text = f"before\n{readme_figures.BEGIN}\nold\n{readme_figures.END}\nafter\n"
    once = readme_figures.replace_between_markers(text, table)
    assert once == f"before\n{table}\nafter\n"
    assert readme_figures.replace_between_markers(once, table) == once
    with pytest.raises(ValueError, match="marker lines"):
        readme_figures.replace_between_markers("no markers", table)
