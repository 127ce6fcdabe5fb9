"""The ``torchneuron`` command: what is installed, what is set, what is cached."""

from __future__ import annotations

import click

from torchneuron.cli.cache import cache
from torchneuron.cli.doctor import doctor
from torchneuron.cli.tables import settings, targets

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="torchneuron")
def main() -> None:
    """Look after an installation of torchneuron."""


main.add_command(doctor)
main.add_command(cache)
main.add_command(settings)
main.add_command(targets)
