"""A second process finds the first one's programs on disk: it lowers and compiles nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json
import torch

torch.manual_seed(0)
model = torch.nn.Linear(6, 3).to("neuron")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
x, y = torch.randn(5, 6).to("neuron"), torch.randn(5, 3).to("neuron")
for _ in range(2):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
metrics = torch.neuron.metrics()
print(json.dumps({
    "loss": loss.item(),
    "compiled": metrics["programs_compiled"],
    "disk": metrics["cache_hits_disk"],
    "lowering": metrics["lowering_seconds"],
}))
"""


def run(cache: Path) -> dict[str, float]:
    environment = {
        **os.environ,
        "TORCHNEURON_CACHE_DIR": str(cache),
        "TORCHNEURON_FALLBACK": "error",
    }
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    parsed: dict[str, float] = json.loads(result.stdout)
    return parsed


def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    cold = run(tmp_path)
    warm = run(tmp_path)
    assert cold["compiled"] > 5
    assert cold["disk"] == 0
    assert warm["compiled"] == 0
    assert warm["disk"] == cold["compiled"]
    assert warm["lowering"] == 0
    assert warm["loss"] == cold["loss"]


def test_a_damaged_cache_costs_only_time(tmp_path: Path) -> None:
    cold = run(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 2000]
    assert files
    files[0].write_bytes(files[0].read_bytes()[:1500])
    again = run(tmp_path)
    assert again["compiled"] == 1
    assert again["loss"] == cold["loss"]
