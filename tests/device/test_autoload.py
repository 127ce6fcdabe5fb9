"""`import torch` alone: the device is there, nothing is printed, nothing is started."""

import json

from tests.conftest import RunPython

QUIET = """
import json, sys
import torch
state = {
    "accelerator": str(torch.accelerator.current_accelerator()),
    "available": torch.accelerator.is_available(),
    "count": torch.accelerator.device_count(),
    "device": str(torch.device("neuron")),
    "module": torch.neuron.__name__,
    "started": torch.neuron.is_initialized(),
    "name": torch.neuron.get_device_name(),
    "memory": torch.neuron.memory_allocated(),
    "heavy": sorted(
        name
        for name in sys.modules
        if name.startswith(("torch_mlir", "torchneuron.lowering", "torchneuron.program", "xla_"))
    ),
    "mapped": "xla_cpu_pjrt" in open("/proc/self/maps").read(),
}
torch.manual_seed(1)
torch.neuron.manual_seed_all(2)
torch.neuron.set_device(1)
with torch.neuron.device(0), torch.random.fork_rng(devices=[0]):
    pass
torch.neuron.synchronize()
state["started later"] = torch.neuron.is_initialized()
print(json.dumps(state))
"""


def test_import_torch_starts_nothing(run_python: RunPython) -> None:
    done = run_python(QUIET)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    state = json.loads(done.stdout)
    assert state["accelerator"] == state["device"] == "neuron"
    assert state["available"] is True
    assert state["count"] >= 2
    assert state["module"] == "torchneuron.device"
    assert state["started"] is False
    assert state["started later"] is False
    assert state["heavy"] == []
    assert state["mapped"] is False
    assert state["memory"] == 0


def test_autoload_can_be_turned_off(run_python: RunPython) -> None:
    script = """
import torch
print(hasattr(torch, "neuron"), torch.accelerator.current_accelerator())
import torchneuron
print(torch.neuron.is_available(), torch.accelerator.current_accelerator())
"""
    done = run_python(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout.split() == ["False", "None", "True", "neuron"]
    assert done.stderr == ""


def test_importing_torchneuron_first(run_python: RunPython) -> None:
    done = run_python(
        "import torchneuron, torch\n"
        "print(torchneuron.__version__, torch.neuron.device_count() > 0, torch.device('neuron'))"
    )
    assert done.stdout.split()[1:] == ["True", "neuron"]
    assert done.stderr == ""


def test_a_second_backend_is_refused_in_one_sentence(run_python: RunPython) -> None:
    script = """
import torch
torch.utils.rename_privateuse1_backend("other")
import torchneuron
"""
    done = run_python(script, check=False, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: torchneuron cannot register the device 'neuron'")
    assert "'other'" in last
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in last


def test_device_count_and_memory_follow_the_settings(run_python: RunPython) -> None:
    """From the environment, and from Python until the client starts."""
    script = """
import torch
from torchneuron.settings import settings

def show():
    print(torch.neuron.device_count(), torch.neuron.mem_get_info()[1] >> 30)

show()
settings.visible_cores = None
show()
settings.num_devices = 3
show()
settings.num_devices = None
settings.logical_nc_config = 1
show()
settings.memory_limit = 5 << 30
show()
settings.target = "trn3"
print(torch.neuron.get_device_name(), torch.neuron.get_device_capability())
torch.neuron.init()
try:
    settings.num_devices = 2
except RuntimeError as error:
    print("too late")
show()
"""
    done = run_python(script, NEURON_RT_VISIBLE_CORES="2-3")
    assert done.stdout.splitlines() == [
        "2 24",
        "4 24",
        "3 24",
        "8 12",
        "8 5",
        "neuron trn3 (4, 0)",
        "too late",
        "8 5",
    ]
    assert done.stderr == ""
