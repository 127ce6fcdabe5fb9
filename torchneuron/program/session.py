"""The compiler of this process and the toolchain it stands for: one for eager, compile and export."""

from functools import cache

from torchneuron import _C
from torchneuron.program import counters
from torchneuron.program.cache import open_cache
from torchneuron.program.compiler import MEMORY_ENTRIES, Compiler
from torchneuron.program.key import Toolchain
from torchneuron.program.options import module_flags, xla_flags
from torchneuron.program.plugin import find_plugin
from torchneuron.settings import settings
from torchneuron.targets import current_target


@cache
def compiler() -> Compiler:
    """The one compiler, with the disk cache that the settings name."""
    counters.connect()
    entries = min(MEMORY_ENTRIES, settings.programs)
    return Compiler(_C.client, open_cache(), memory_entries=entries)


@cache
def toolchain() -> Toolchain:
    """What every key of this process has in common. Starts the client."""
    client = _C.client()
    return Toolchain.current(
        client.platform_name,
        client.platform_version,
        tuple(client.api_version),
        current_target().name,
        find_plugin().path,
        xla_flags(client.platform_name),
    )


def compile_flags() -> dict[str, str]:
    """The plugin's compile options, which are part of ``toolchain``."""
    return xla_flags(_C.client().platform_name)


def flags_of(*, reduces_rows: bool, small: bool = False) -> dict[str, str]:
    """The plugin's compile options for one lowered module, besides ``compile_flags``."""
    return module_flags(_C.client().platform_name, reduces_rows=reduces_rows, small=small)
