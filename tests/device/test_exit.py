"""The end of the interpreter, with live tensors and work under way."""

import pytest

from tests.conftest import RunPython

SCRIPTS = {
    "live tensors and pending work": """
import torch
kept = [torch.randn(300, 300, device="neuron") for _ in range(3)]
for _ in range(20):
    kept.append(kept[-1] @ kept[-2])
event = torch.neuron.Event()
event.record()
stream = torch.neuron.Stream()
module = torch.nn.Linear(2, 2).to("neuron:1")
generator = torch.Generator("neuron")
loss = (module(torch.ones(1, 2, device="neuron:1")) ** 2).sum()
loss.backward()
cycle = []
cycle.append((cycle, kept[0]))
""",
    "an unhandled exception": """
import sys, torch
x = torch.ones(4, device="neuron") + 1
sys.exit(3)
""",
    "use in an exit handler": """
import atexit, torch
x = torch.ones(4, device="neuron")
def late():
    assert (x + 1).sum().item() == 8
atexit.register(late)
""",
    "a module that keeps tensors until the very end": """
import sys, torch
class Keeper:
    def __init__(self):
        self.x = torch.ones(4, device="neuron") * 2
    def __del__(self):
        self.x = None
sys.keeper = Keeper()
torch.neuron.keeper = Keeper()
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_interpreter_ends_quietly(run_python: RunPython, name: str) -> None:
    done = run_python(SCRIPTS[name], check=False)
    assert done.returncode == (3 if "sys.exit(3)" in SCRIPTS[name] else 0), done.stderr
    assert done.stdout == ""
    assert done.stderr == ""
