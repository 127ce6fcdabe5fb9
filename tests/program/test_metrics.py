"""Counters, reasons, reports."""

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from torchneuron.program.metrics import (
    METRICS,
    Metrics,
    metrics,
    metrics_report,
    reason_to_compile,
    reset_metrics,
    split_fields,
)


def test_names_and_zeros() -> None:
    values = Metrics().snapshot()
    assert values["fallbacks"] == {}
    assert values["compile_events"] == values["fallback_events"] == []
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    assert set(numbers) == {
        "programs_compiled",
        "cache_hits_memory",
        "cache_hits_disk",
        "cache_corrupt",
        "executions",
        "programs_dropped",
        "frozen_packs",
        "padded_calls",
        "lowering_seconds",
        "compile_seconds",
        "load_seconds",
        "bytes_h2d",
        "bytes_d2h",
    }
    assert not any(numbers.values())


def test_providers_are_merged_and_reset() -> None:
    counts = {"executions": 5, "cache_hits_memory": 2}
    by_op = {"aten.sort": 1}
    own = Metrics()
    own.provide(lambda: {**counts, "fallbacks": by_op})
    own.add("cache_hits_memory")
    own.record_fallback("aten.sort", "no road", "train.py:3")
    values = own.snapshot()
    assert (values["executions"], values["cache_hits_memory"]) == (5, 3)
    assert values["fallbacks"] == {"aten.sort": 2}
    own.reset()
    counts["executions"] += 1
    by_op = {"aten.sort": 1, "aten.topk": 4}
    values = own.snapshot()
    assert (values["executions"], values["cache_hits_memory"]) == (1, 0)
    assert values["fallbacks"] == {"aten.topk": 4}
    assert values["fallback_events"] == []


def test_an_unknown_counter_is_an_error() -> None:
    with pytest.raises(KeyError):
        Metrics().add("executoins")


def test_fallback_events_name_the_line() -> None:
    own = Metrics()
    assert own.record_fallback("aten.sort", "no road", "train.py:3") == 1
    assert own.record_fallback("aten.sort", "no road", "train.py:9") == 2
    events = own.snapshot()["fallback_events"]
    assert events[0] == {"op": "aten.sort", "reason": "no road", "source": "train.py:3"}


def test_events_are_bounded() -> None:
    own = Metrics()
    for number in range(1500):
        own.record_program("aten.add", f"f32[{number}]", 0.1, "compiled")
        own.record_fallback("aten.sort", "", "")
    values = own.snapshot()
    assert len(values["compile_events"]) == len(values["fallback_events"]) == 1000
    assert values["programs_compiled"] == values["fallbacks"]["aten.sort"] == 1500


@pytest.mark.parametrize(
    ("known", "signature", "reason"),
    [
        ([], "a", "first use"),
        (["f32[2], dim 0"], "f32[2], dim 1", "dim 0 became dim 1"),
        (["f32[2, 3], 1"], "f32[2, 4], 1", "f32[2, 3] became f32[2, 4]"),
        (["a, b, c", "a, x, y"], "a, x, c", "y became c"),
        (["a, b, c", "x, b, d"], "a, b, d", "x became a"),
        (["a"], "a, b", "b is new"),
        (["a, b"], "a", "b is gone"),
        (["a"], "a", "no longer in memory"),
    ],
)
def test_the_reason_is_the_first_difference_to_the_nearest(
    known: list[str], signature: str, reason: str
) -> None:
    assert reason_to_compile(signature, deque(known)) == reason


def test_fields_split_outside_brackets() -> None:
    assert split_fields("f32[2, 3](1, 2), {a, b}, <c,d>, x") == [
        "f32[2, 3](1, 2)",
        "{a, b}",
        "<c,d>",
        "x",
    ]


def test_many_threads() -> None:
    own = Metrics()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: own.add("executions"), range(2000)))
    assert own.snapshot()["executions"] == 2000


def test_usable_in_a_child_of_a_fork_under_lock() -> None:
    own = Metrics()
    with own._lock:
        child = os.fork()
        if child == 0:
            own.add("executions")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_report_of_the_process() -> None:
    reset_metrics()
    METRICS.add("bytes_h2d", 3 << 20)
    METRICS.record_program("aten.report", "f32[2]", 0.0123, "compiled")
    METRICS.record_fallback("aten.report_cpu", "no road", "train.py:3")
    report = metrics_report()
    for text in ("3.0 MiB", "12.3 ms  aten.report (compiled)", "first use", "1  aten.report_cpu"):
        assert text in report
    assert "train.py:3" in report
    assert "aten.report (compiled)" not in metrics_report(events=0)
    reset_metrics()
    assert not metrics()["fallbacks"]
