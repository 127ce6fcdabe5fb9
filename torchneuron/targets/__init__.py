"""The chips that programs are checked and estimated for, as tables of documented facts.

    from torchneuron.targets import get_target

    get_target("trn2").hbm_bytes_per_device()   # 24 GiB with two physical cores per logical one

One file a chip; a new chip is a new file and a line in ``TARGETS``.
"""

from __future__ import annotations

from torchneuron.settings import Settings, settings
from torchneuron.targets.target import Engine, Target
from torchneuron.targets.trn2 import TRN2
from torchneuron.targets.trn3 import TRN3

__all__ = ["TARGETS", "Engine", "Target", "current_target", "device_memory_limit", "get_target"]

TARGETS: dict[str, Target] = {target.name: target for target in (TRN2, TRN3)}


def get_target(name: str) -> Target:
    """The target of this name or alias (``trn2`` or ``gen3``, in any case); ValueError if none."""
    wanted = name.lower()
    for target in TARGETS.values():
        if wanted == target.name or wanted in target.aliases:
            return target
    raise ValueError(f"{name!r} is not a target: choose {' or '.join(TARGETS)}.")


def current_target(chosen: Settings = settings) -> Target:
    """The target that the settings name."""
    return get_target(chosen.target)


def device_memory_limit(chosen: Settings = settings) -> int:
    """Bytes that one device may use: the setting, or its share of the target's memory."""
    if chosen.memory_limit is not None:
        return chosen.memory_limit
    return current_target(chosen).hbm_bytes_per_device(chosen.logical_nc_config)
