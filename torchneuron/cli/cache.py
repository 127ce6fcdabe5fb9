"""``torchneuron cache``: what the program cache holds, and emptying it."""

from __future__ import annotations

import click

from torchneuron.cli.output import as_json, print_json, print_table, size, user_errors
from torchneuron.program.cache import CacheInfo, DiskCache
from torchneuron.settings import settings


@click.group()
def cache() -> None:
    """The compiled programs kept on disk."""


@cache.command()
@as_json
def info(json_output: bool) -> None:
    """Show where the cache is and how full."""
    with user_errors(ValueError, OSError):
        _show(_opened().info(), json_output, "programs")


@cache.command()
@as_json
def clear(json_output: bool) -> None:
    """Remove all programs; other files in the directory stay."""
    with user_errors(ValueError, OSError):
        _show(_opened().clear(), json_output, "removed")


def _opened() -> DiskCache:
    directory = settings.cache_dir
    if directory is None:
        raise ValueError(
            "There is no home directory to keep programs in; set TORCHNEURON_CACHE_DIR."
        )
    return DiskCache(directory, settings.cache_size)


def _show(info: CacheInfo, json_output: bool, counted: str) -> None:
    if json_output:
        values = {"directory": info.directory, counted: info.entries, "bytes": info.bytes}
        print_json({**values, "max_bytes": info.max_bytes, "enabled": settings.cache})
        return
    print_table(
        [
            ("directory", info.directory + ("" if settings.cache else " (switched off)")),
            (counted, f"{info.entries:,}"),
            ("size", f"{size(info.bytes)} of at most {size(info.max_bytes)}"),
        ]
    )
