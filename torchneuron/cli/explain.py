"""``torchneuron explain``: run a script and tell what torch.compile made of it."""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from pathlib import Path

import click

from torchneuron.cli.output import as_json, print_json


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@as_json
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def explain(json_output: bool, script: Path, arguments: tuple[str, ...]) -> None:
    """Run a Python SCRIPT with its ARGUMENTS and explain its compiled functions.

    Graphs, graph breaks with their lines, recompiles with the guard that caused them, operations by
    the road they took, programs with sizes and times. With --json the script's own output goes to
    stderr. The exit code is the script's.
    """
    from torchneuron.compile.explain import explaining

    with explaining() as explanation:
        output = contextlib.redirect_stdout(sys.stderr) if json_output else contextlib.nullcontext()
        with output:
            code = _run(script, arguments)
    if json_output:
        print_json(explanation.as_dict())
    else:
        click.echo(f"\n{explanation}")
    sys.exit(code)


def _run(script: Path, arguments: tuple[str, ...]) -> int:
    """Run the script as ``python SCRIPT ARGUMENTS`` would; its exit code."""
    argv, path = sys.argv, sys.path
    sys.argv, sys.path = [str(script), *arguments], [str(script.resolve().parent), *sys.path]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        if isinstance(stop.code, str):
            click.echo(stop.code, err=True)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path = argv, path
    return 0
