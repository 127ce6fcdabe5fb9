"""Ops written as StableHLO, one op family a file."""

import importlib
import pkgutil


def load() -> None:
    """Import every module of this package; each registers its ops."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
