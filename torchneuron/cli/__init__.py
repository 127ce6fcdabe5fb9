"""The ``torchneuron`` command: what is installed, set and cached; exporting and explaining."""

from __future__ import annotations

import click

from torchneuron.cli.cache import cache
from torchneuron.cli.doctor import doctor
from torchneuron.cli.explain import explain
from torchneuron.cli.export import export
from torchneuron.cli.tables import settings, targets

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="torchneuron")
def main() -> None:
    """Look after an installation of torchneuron, export programs, explain compiled scripts."""


main.add_command(doctor)
main.add_command(cache)
main.add_command(settings)
main.add_command(targets)
main.add_command(export)
main.add_command(explain)
