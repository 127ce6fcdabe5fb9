"""Memory figures and the limit. All sizes are in bytes.

The runtime keeps no cache of freed memory, so that reserved equals allocated.
"""

from typing import Any

import torch

from torchneuron import _C
from torchneuron.device.devices import DeviceLike, index_of

_full_limit: int | None = None


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """All counters by name, as ``torch.accelerator.memory_stats`` gives them."""
    return dict(torch.accelerator.memory_stats(index_of(device)))


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors take now."""
    return torch.accelerator.memory_allocated(index_of(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most that tensors took at once since the last ``reset_peak_memory_stats``."""
    return torch.accelerator.max_memory_allocated(index_of(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes taken from the device."""
    return torch.accelerator.memory_reserved(index_of(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most taken from the device at once since the last ``reset_peak_memory_stats``."""
    return torch.accelerator.max_memory_reserved(index_of(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Start the peaks anew from the present figures."""
    torch.accelerator.reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Start the accumulated counters anew."""
    torch.accelerator.reset_accumulated_memory_stats(index_of(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of the device; total is the limit in force."""
    free, total = torch.accelerator.get_memory_info(index_of(device))
    return free, total


def empty_cache() -> None:
    """Release cached memory; there is none to release."""
    torch.accelerator.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limit every device of this process to ``fraction`` of its memory.

    ``device`` is only checked: the devices of a process have one limit. TypeError if ``fraction``
    is no float, ValueError outside [0, 1].
    """
    global _full_limit
    index_of(device)
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    if _full_limit is None:
        _full_limit = _C.memory_limit()
    _C.set_memory_limit(int(_full_limit * fraction))


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A short table of the memory figures of ``device``."""
    index = index_of(device)
    stats = memory_stats(index)
    free, total = mem_get_info(index)
    rows = [("capacity", total), ("free", free)]
    for what in ("current", "peak", "allocated", "freed"):
        rows.append((what, stats[f"allocated_bytes.all.{what}"]))
    lines = [f"neuron:{index} memory"]
    lines += [f"  {name:<10} {value / 2**20:>14.2f} MiB" for name, value in rows]
    if not abbreviated:
        lines.append(
            f"  out of memory {stats['num_ooms']} time(s), {stats['num_alloc_retries']} retries"
        )
    return "\n".join(lines)
