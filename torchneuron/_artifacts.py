"""Compiled programs among the artifacts of ``torch.compiler.save_cache_artifacts``.

Registered at start-up, since PyTorch must know the type before it loads artifacts that hold one; so
what the work itself needs is imported when there is some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

if TYPE_CHECKING:
    from torchneuron.program.cache import DiskCache

_TYPE = "neuron_neff"


class NeffArtifact(CacheArtifact):
    """One program: its key and the contents of its file."""

    def populate_cache(self) -> None:
        """Put the program into the disk cache; one that is not intact is left out."""
        from torchneuron.program import Neff, NeffError, open_cache

        cache = open_cache()
        if cache is not None:
            try:
                cache.put(self.key, Neff.from_bytes(self.content))
            except NeffError:
                return

    @staticmethod
    def type() -> str:
        """The name under which PyTorch keeps programs apart from its own artifacts."""
        return _TYPE


def register() -> None:
    """Make PyTorch know the type."""
    CacheArtifactFactory.register(NeffArtifact)


def record(cache: DiskCache | None, key: str) -> None:
    """Add a program that is on disk to what ``save_cache_artifacts`` will save."""
    content = cache.read(key) if cache is not None else None
    if content is not None:
        CacheArtifactManager.record_artifact(_TYPE, key, content)
