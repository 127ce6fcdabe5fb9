"""``torch.neuron``: devices, streams, memory, random numbers and metrics of the neuron device.

Example::

    import torch

    x = torch.randn(2, 3, device="neuron")
    torch.neuron.synchronize()
    print(torch.neuron.memory_allocated(), torch.neuron.metrics()["programs_compiled"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from torchneuron.device import _utils as _utils
from torchneuron.device.devices import (
    DeviceProperties,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_built,
    is_initialized,
    set_device,
    synchronize,
)
from torchneuron.device.devices import _is_in_bad_fork as _is_in_bad_fork
from torchneuron.device.eager_mode import eager_mode, windows, windows_report
from torchneuron.device.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torchneuron.device.metrics import metrics, metrics_report, reset_metrics
from torchneuron.device.random import _get_generator as _get_generator
from torchneuron.device.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torchneuron.device.streams import (
    Event,
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

if TYPE_CHECKING:
    from torchneuron.compile.explain import explain
    from torchneuron.compile.export import export
    from torchneuron.compile.load import load_exported

OutOfMemoryError = torch.OutOfMemoryError

# What needs the compiler is imported when first asked for, to keep ``import torch`` light.
_LATER = {
    "explain": "torchneuron.compile.explain",
    "export": "torchneuron.compile.export",
    "load_exported": "torchneuron.compile.load",
}


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes that ``torch.autocast("neuron")`` may compute in."""
    return [torch.bfloat16, torch.float16]


def __getattr__(name: str) -> Any:
    # PyTorch asks for these under the names that torch.cuda gives them: activation checkpointing
    # saves the random state of a device only where `_initialized` is true.
    if name == "_initialized":
        return is_initialized()
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DeviceProperties",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "eager_mode",
    "empty_cache",
    "explain",
    "export",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_built",
    "is_initialized",
    "load_exported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "metrics",
    "metrics_report",
    "reset_accumulated_memory_stats",
    "reset_metrics",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "windows",
    "windows_report",
]
