"""A worker that dies or hangs is an answer, and the tasks after it are answered by another one."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.scoreboard import report
from tests.conformance.scoreboard.tasks import Result, Task, run
from tests.conformance.workers import WorkerDied, run_all

_MODULE = "tests.conformance.unruly_worker"


def test_each_task_has_an_answer() -> None:
    tasks = ["work", "die", "print", "hang", "work"]
    answers = list(run_all(_MODULE, tasks, timeout=5))
    assert [task for task, _ in answers] == tasks
    first, died, printed, hung, last = (answer for _, answer in answers)
    assert isinstance(died, WorkerDied)
    assert "-6: last words" in str(died)
    assert isinstance(hung, WorkerDied)
    assert "longer than 5 s" in str(hung)
    assert len({first, printed, last}) == 3


def test_several_workers_at_a_time() -> None:
    answers = list(run_all(_MODULE, ["work"] * 3, timeout=60, jobs=2))
    assert all(isinstance(answer, int) for _, answer in answers)


def test_an_error_of_the_samples_is_a_row() -> None:
    row = run(Task("op_db", "add", "complex32", "no such aspect"), 1, "strict")
    assert row.status == "error"


def test_the_report_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(report, "ROOT", tmp_path)
    tasks = [Task("op_db", name, "float32", "forward") for name in "abcde"]
    states = ["native", "fallback", "wrong", "no sample"]
    rows = [
        Result(*task, "strict", state, 1, "because", run)
        for task, state, run in zip(tasks, states, ["all", "1", "1", "all"], strict=False)
    ]
    report.write(
        [*rows, Result("op_db", "gone", "float32", "forward", "strict", "wrong", 1)],
        tasks,
        "strict",
        report.Comparison("adaptive", rows[:3], [replace(rows[0], status="error"), rows[1]]),
    )
    page = (tmp_path / "docs" / "scoreboard.md").read_text()
    assert "4 of 5 rows have been run" in page
    assert "| float32 | 3 | 4 | 1 | 66.7 % | 99 % | 33.3 % | 93 % | 1 | 0 |" in page
    assert "Of 2 rows whose first sample was run in both modes, 1 came out the same." in page
    assert [row.task.op for row in report.published()] == ["a", "b", "c", "d", "a", "b"]
