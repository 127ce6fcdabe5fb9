"""``torchneuron export``: from the file of torch.export.save to a NEFF, and what a NEFF holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchneuron.cli.output import as_json, print_json, print_table, size, user_errors
from torchneuron.program.errors import ProgramError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from torchneuron.program.neff import Neff

_PATH = click.Path(dir_okay=False, path_type=Path)


@click.command()
@as_json
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=_PATH, help="The NEFF to write.")
@click.option("--stablehlo", type=_PATH, help="Also write the StableHLO portable artifact.")
@click.option("--show", is_flag=True, help="List what the NEFF at FILE holds.")
def export(
    json_output: bool, file: Path, output: Path | None, stablehlo: Path | None, show: bool
) -> None:
    """Compile FILE, a .pt2 of torch.export.save, into a NEFF that runs without the model's code.

    torch.neuron.load_exported loads it. Example: torchneuron export model.pt2 -o model.neff
    """
    if show == (output is not None or stablehlo is not None):
        raise click.UsageError("give --output or --stablehlo to export, or --show to list a NEFF")
    # Importing the compiler takes long; --help and usage errors should not.
    from torchneuron.compile.exported import ExportError
    from torchneuron.lowering.errors import LoweringError

    with user_errors(ExportError, LoweringError, ProgramError, TypeError, OSError):
        neff = _read(file) if show else _export(_program(file), output, stablehlo)
    if json_output:
        print_json(_described(neff))
    else:
        _print(neff)


def _read(file: Path) -> Neff:
    from torchneuron.compile.load import read

    return read(file)


def _program(file: Path) -> ExportedProgram:
    import torch

    try:
        return torch.export.load(file)
    except Exception as error:
        # PyTorch raises anything from AssertionError to zip errors for what is not its file.
        raise click.ClickException(
            f"{file} is not a program of torch.export.save: {type(error).__name__}: {error}"
        ) from error


def _export(program: ExportedProgram, output: Path | None, stablehlo: Path | None) -> Neff:
    from torchneuron.compile.export import export

    return export(program, path=output, stablehlo=stablehlo)


def _described(neff: Neff) -> dict[str, Any]:
    interface = dict(neff.interface)
    for hidden in ("in_spec", "out_spec", "key", "machine"):
        interface.pop(hidden)
    return {
        "name": neff.name,
        **interface,
        "roads": neff.metadata["roads"],
        "bytes": _sizes(neff),
        "cost": neff.cost,
    }


def _sizes(neff: Neff) -> dict[str, int]:
    members = {name: len(member) for name, member in neff.members.items()}
    return {"stablehlo": len(neff.stablehlo), "executable": len(neff.executable), **members}


def _print(neff: Neff) -> None:
    interface = neff.interface
    click.echo(f"{neff.name}: {_counted(interface)}")
    _section("INPUTS", [_input(item) for item in interface["inputs"]])
    bounds = [(name, *_bounds(limits)) for name, limits in interface["symbols"].items()]
    _section("SYMBOLS", bounds)
    _section("OPERANDS of main, flat, in order", [_operand(item) for item in interface["operands"]])
    _section("SIZES", [(name, size(count)) for name, count in _sizes(neff).items()])
    _section("COST as the plugin estimates", [(n, f"{v:,.0f}") for n, v in neff.cost.items()])


def _counted(interface: Mapping[str, Any]) -> str:
    state = interface["state"].values()
    elements = sum(math.prod(item["sizes"]) for item in state)
    return (
        f"{len(interface['inputs'])} inputs, {len(interface['results'])} results, "
        f"{len(state)} weights of {elements:,} elements"
    )


def _input(item: Mapping[str, Any]) -> tuple[str, str]:
    if item["kind"] == "tensor":
        sizes = ", ".join(map(str, item["sizes"]))
        return item["name"], f"{item['dtype']}[{sizes}]" + (
            ", changed by the program" if item["mutated"] else ""
        )
    return item["name"], f"{item['kind']} {item['value']}"


def _bounds(limits: Sequence[int | None]) -> tuple[str]:
    low, high = limits
    return (f"{0 if low is None else low} to {'any' if high is None else high}",)


def _operand(item: Mapping[str, Any]) -> tuple[str, ...]:
    return item["kind"], f"{item['dtype']}[{item['numel']}]", ", ".join(item["arguments"])


def _section(title: str, rows: Sequence[Sequence[str]]) -> None:
    if rows:
        click.echo(f"\n{title}")
        print_table([("", *row) for row in rows])
