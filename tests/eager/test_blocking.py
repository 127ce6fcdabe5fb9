"""Blocking mode, deferred errors and the dump."""

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import torch

from torchneuron.settings import settings


def test_blocking_mode_gives_the_same_results() -> None:
    before = settings.eager
    try:
        settings.eager = "blocking"
        x = torch.arange(4.0, device="neuron")
        assert ((x + 1) * 2).tolist() == [2, 4, 6, 8]
    finally:
        settings.eager = before


def test_the_variable_of_neuron_users_turns_it_on() -> None:
    code = "import torch; from torchneuron import _C; print(_C.eager_mode())"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NEURON_LAUNCH_BLOCKING": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "blocking"


# What is in memory is not compiled again, in whichever order the tests run.
_fresh_sizes = count(1009)


def test_the_dump_holds_graph_stablehlo_and_signature(tmp_path: Path) -> None:
    before = settings.dump
    try:
        settings.dump = str(tmp_path)
        x = torch.ones(3, next(_fresh_sizes), 2, device="neuron")
        (x * 3 - x).sum()
    finally:
        settings.dump = before
    text = "\n".join(
        path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
    )
    assert "stablehlo" in text
    assert "aten.mul.Tensor" in text
