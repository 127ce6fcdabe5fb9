"""Caches across processes: AOTAutogradCache, our programs, PyTorch's portable artifacts, ranks."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunPython
from torchneuron.compile.compiled import SavedGraph
from torchneuron.compile.options import Options

SCRIPT = """
import json, sys, torch, torch._functorch.config
from torch import nn
from torch._dynamo.utils import counters

if len(sys.argv) > 2 and sys.argv[1] == "load":
    assert torch.compiler.load_cache_artifacts(open(sys.argv[2], "rb").read())
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 2)).to("neuron")
run = torch.compile(model, backend="neuron", fullgraph=True)
loss = run(torch.ones(4, 6, device="neuron")).square().mean()
loss.backward()
dynamic = torch.compile(lambda x: x.cos().sum(0), backend="neuron", dynamic=True)
sums = [dynamic(torch.ones(n, 2, device="neuron")).tolist() for n in (3, 5)]
if len(sys.argv) > 2 and sys.argv[1] == "save":
    open(sys.argv[2], "wb").write(torch.compiler.save_cache_artifacts()[0])
metrics = torch.neuron.metrics()
graphs = [e for e in metrics["compile_events"] if e["op"].startswith("graph")]
print(json.dumps({
    "loss": loss.item(), "gradient": model[0].weight.grad.sum().item(), "sums": sums,
    "graphs_compiled": sum(e["origin"] == "compiled" for e in graphs),
    "graphs_loaded": sum(e["origin"] == "disk" for e in graphs),
    "lowering": metrics["lowering_seconds"],
    "aot": dict(counters["aot_autograd"]),
}))
"""


def run(
    directory: Path, *arguments: str, script: str = SCRIPT, **variables: str
) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        **variables,
        "TORCHNEURON_CACHE_DIR": str(directory / "programs"),
        "TORCHINDUCTOR_CACHE_DIR": str(directory / "torch"),
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-c", script, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


PRECOMPILED = """
import json, torch
from torch import nn
from torch._dynamo.utils import counters

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 2)).to("neuron")
run = torch.compile(model, backend="neuron")
loss = run(torch.ones(4, 6, device="neuron")).square().mean()
loss.backward()
torch.compiler.save_cache_artifacts()
print(json.dumps({
    "loss": loss.item(), "gradient": model[0].weight.grad.sum().item(),
    "traced": counters["stats"]["calls_captured"],
    "compiled": torch.neuron.metrics()["programs_compiled"],
}))
"""


def same_numbers(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] == other[name] for name in ("loss", "gradient", "sums"))


def test_a_second_process_traces_lowers_and_compiles_nothing(tmp_path: Path) -> None:
    first, second = (outcome(run(tmp_path)) for _ in range(2))
    assert first["graphs_compiled"] == 4
    assert first["aot"]["autograd_cache_saved"] == 2
    assert second["graphs_compiled"] == 0
    assert second["graphs_loaded"] == 4
    assert second["lowering"] == 0
    assert second["aot"]["autograd_cache_hit"] == 2
    assert same_numbers(first, second)


BUCKETS = """
import json, torch
from torch import nn
from torch._dynamo.utils import counters

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.Softmax(1), nn.Linear(8, 2)).to("neuron")
run = torch.compile(model, backend="neuron", dynamic=True, options={"buckets": {1: [8]}})
sums = []
for n in (3, 5, 9):
    loss = run(torch.rand(2, n, 6).to("neuron")).square().mean()
    loss.backward()
    sums.append(loss.item())
metrics = torch.neuron.metrics()
graphs = [e for e in metrics["compile_events"] if e["op"].startswith("graph")]
print(json.dumps({
    "sums": sums, "gradient": model[0].weight.grad.sum().item(), "padded": metrics["padded_calls"],
    "compiled": sum(e["origin"] == "compiled" for e in graphs), "graphs": len(graphs),
    "aot": dict(counters["aot_autograd"]),
}))
"""


def test_padded_graphs_are_kept(tmp_path: Path) -> None:
    first, second = (outcome(run(tmp_path, script=BUCKETS)) for _ in range(2))
    assert first["aot"]["autograd_cache_saved"] == second["aot"]["autograd_cache_hit"] == 1
    assert first["padded"] == second["padded"] == 4
    # Two of a bucket, two of the size that is larger.
    assert first["graphs"] == second["graphs"] == first["compiled"] == 4
    assert second["compiled"] == 0
    assert [second[k] for k in ("sums", "gradient")] == [first[k] for k in ("sums", "gradient")]


def test_artifacts_carry_programs_to_another_machine(tmp_path: Path) -> None:
    file = str(tmp_path / "artifacts")
    first = outcome(run(tmp_path / "here", "save", file))
    second = outcome(run(tmp_path / "there", "load", file))
    assert second["graphs_compiled"] == 0
    assert second["graphs_loaded"] == 4
    assert second["aot"]["autograd_cache_hit"] == 2
    assert same_numbers(first, second)


def test_ranks_that_start_together_compile_each_program_once(tmp_path: Path) -> None:
    ranks = [outcome(process) for process in [run(tmp_path) for _ in range(2)]]
    assert sum(rank["graphs_compiled"] for rank in ranks) == 4
    assert sum(rank["graphs_loaded"] for rank in ranks) == 4
    assert same_numbers(*ranks)
    assert not list((tmp_path / "programs").glob("*.turn"))


def test_other_options_are_another_entry(run_python: RunPython, tmp_path: Path) -> None:
    script = """
import torch
from torch._dynamo.utils import counters
f = lambda x: x.exp() + 1
for options in ({}, {"programs": 3}):
    torch._dynamo.reset()
    torch.compile(f, backend="neuron", options=options)(torch.ones(2, device="neuron"))
print(counters["aot_autograd"]["autograd_cache_hit"], counters["aot_autograd"]["autograd_cache_miss"])
"""
    done = run_python(script, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert done.stdout.split() == ["0", "2"]


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    first = outcome(run(tmp_path))
    kept = [*(tmp_path / "torch").rglob("*"), *(tmp_path / "programs").glob("*.neff")]
    for index, file in enumerate(file for file in kept if file.is_file()):
        file.write_bytes(b"torn"[: 4 * (index % 2)])
    second = outcome(run(tmp_path))
    assert second["graphs_compiled"] == 4
    assert same_numbers(first, second)


def test_with_precompile_a_second_process_does_not_run_dynamo(tmp_path: Path) -> None:
    first, second = (
        outcome(run(tmp_path, script=PRECOMPILED, TORCH_CACHING_PRECOMPILE="1")) for _ in range(2)
    )
    assert first["traced"] > 0
    assert first["compiled"] > 0
    assert second["traced"] == 0
    assert second["compiled"] == 0
    assert [first["loss"], first["gradient"]] == [second["loss"], second["gradient"]]


def test_a_graph_of_another_version_is_not_restored() -> None:
    saved = SavedGraph("forward", Options(), "digest", 0, [], b"", "another version")
    with pytest.raises(RuntimeError, match="another version of torchneuron"):
        pickle.loads(pickle.dumps(saved))
