"""``torchneuron settings`` and ``torchneuron targets``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from torchneuron.cli.output import as_json, print_json, print_table, size, user_errors
from torchneuron.settings import Row, describe
from torchneuron.targets import TARGETS, Target


@click.command()
@as_json
@click.option("--markdown", is_flag=True, help="Print the table of docs/settings.md.")
def settings(json_output: bool, markdown: bool) -> None:
    """Show all settings, their values and where those come from."""
    with user_errors(ValueError):
        rows = describe()
    if json_output:
        print_json([row._asdict() for row in rows])
    elif markdown:
        click.echo(settings_markdown(rows))
    else:
        shown = [(row.variable, _text(row), row.source, row.meaning) for row in rows]
        print_table([("VARIABLE", "VALUE", "FROM", "MEANING"), *shown])


@click.command()
@as_json
def targets(json_output: bool) -> None:
    """Show the chips that programs can be checked and estimated for."""
    if json_output:
        print_json({name: _described(target) for name, target in TARGETS.items()})
        return
    columns = [_summary(target) for target in TARGETS.values()]
    print_table([(name, *(column[name] for column in columns)) for name in columns[0]])


def settings_markdown(rows: Iterable[Row]) -> str:
    """The table of docs/settings.md: what is true of every process, so no values."""
    lines = ["| variable | values | default | stage | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        variables = ", ".join(f"`{name}`" for name in (row.variable, *row.aliases))
        lines.append(
            f"| {variables} | {row.allowed} | {row.default} | {row.stage} | {row.meaning} |"
        )
    return "\n".join(lines)


def _text(row: Row) -> str:
    if row.value is None or row.value == ():
        return row.default
    if isinstance(row.value, bool):
        return "on" if row.value else "off"
    if isinstance(row.value, tuple):
        return " ".join(map(str, row.value))
    return size(row.value) if row.type == "bytes" and isinstance(row.value, int) else str(row.value)


def _described(target: Target) -> dict[str, Any]:
    values = {name: getattr(target, name) for name in target.__dataclass_fields__}
    for engine in ("vector_engine", "scalar_engine"):
        values[engine] = {
            name: getattr(values[engine], name) for name in values[engine].__dataclass_fields__
        }
    return values


def _summary(target: Target) -> dict[str, str]:
    peaks = target.chip_tflops
    return {
        "target": target.name,
        "chip": f"{target.chip} ({target.core})",
        "cores per chip": f"{target.physical_cores}, {target.logical_cores()} logical",
        "memory per chip": size(target.hbm_bytes),
        "memory per device": size(target.hbm_bytes_per_device()),
        "memory bandwidth": f"{target.hbm_bytes_per_second / 1e12:.1f} TB/s",
        "TFLOPS bf16, fp8, fp32": f"{peaks['bfloat16']:g}, {peaks['float8']:g}, "
        f"{peaks['float32']:g}",
        "SBUF, PSUM per core": f"{size(target.sbuf_bytes)}, {size(target.psum_bytes)}",
        "dtypes": ", ".join(sorted(target.dtypes)),
    }
