"""Higher-order operators: ops whose arguments are graphs, one family a file."""

import importlib
import pkgutil


def load() -> None:
    """Import every module of this package; each registers its operators."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
