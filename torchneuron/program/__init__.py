"""StableHLO to executable: the PJRT plugin, the program cache, and what happened in numbers.

Importing this package loads no compiler, no plugin and not PyTorch. The functions ``metrics()``,
``reset_metrics()`` and ``metrics_report()`` are in ``torchneuron.program.metrics``.
"""

from torchneuron.program.cache import CacheInfo, CacheStats, DiskCache, open_cache
from torchneuron.program.compiler import Compiler, Program
from torchneuron.program.dump import Dumper
from torchneuron.program.errors import (
    CacheWarning,
    CompileError,
    NeffError,
    PluginNotFoundError,
    ProgramError,
)
from torchneuron.program.key import Parts, Toolchain, differences, digest
from torchneuron.program.metrics import METRICS, Metrics
from torchneuron.program.neff import Neff
from torchneuron.program.plugin import Plugin, find_plugin, installed_plugins, neuron_devices

__all__ = [
    "METRICS",
    "CacheInfo",
    "CacheStats",
    "CacheWarning",
    "CompileError",
    "Compiler",
    "DiskCache",
    "Dumper",
    "Metrics",
    "Neff",
    "NeffError",
    "Parts",
    "Plugin",
    "PluginNotFoundError",
    "Program",
    "ProgramError",
    "Toolchain",
    "differences",
    "digest",
    "find_plugin",
    "installed_plugins",
    "neuron_devices",
    "open_cache",
]
