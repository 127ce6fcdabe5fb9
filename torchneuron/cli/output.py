"""How the commands print: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

as_json = click.option("--json", "json_output", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    """Print ``value`` as indented JSON; what JSON lacks becomes a list or a string."""

    def plain(other: Any) -> Any:
        return sorted(other) if isinstance(other, set | frozenset) else dict(other)

    click.echo(json.dumps(value, indent=2, default=plain))


def print_table(rows: Iterable[Sequence[str]]) -> None:
    """Print columns; the last one may be of any length."""
    lines = [tuple(row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


@contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors that the user can mend into a message without a traceback."""
    try:
        yield
    except kinds as error:
        raise click.ClickException(str(error)) from error


def size(count: int) -> str:
    """Bytes for people, such as ``1.5 GiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
