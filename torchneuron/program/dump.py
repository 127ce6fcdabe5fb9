"""TORCHNEURON_DUMP: one numbered set of text files per program that was compiled or loaded.

    <dir>/<pid>/0007-aten.add.Tensor-1f6c22d09a3b.txt    operation, signature, origin, key parts
                                              .fx        the FX graph
                                              .mlir      the StableHLO module

Ranks may share a directory: each process has its own folder. A directory that cannot be written is
warned about once; the run goes on.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchneuron.program.key import Parts, digest
from torchneuron.settings import settings

_BYTECODE = b"ML\xefR"
_NAME_LENGTH = 80


def _by_setting() -> str | None:
    return settings.dump


class Dumper:
    """Writes programs into a directory, while there is one to write into."""

    def __init__(self, directory: Callable[[], str | None] = _by_setting) -> None:
        """``directory`` is asked for every program; None is no dump."""
        self._directory = directory
        self._numbers = itertools.count(1)
        self._broken = False

    def write(
        self,
        op: str,
        signature: str,
        origin: str,
        parts: Parts,
        graph: Callable[[], str] | None,
        stablehlo: bytes,
    ) -> None:
        """Write one program; ``stablehlo`` is text or a portable artifact.

        ``graph`` gives the text of the FX graph, if there is one.
        """
        directory = self._directory()
        if directory is None or self._broken:
            return
        name = "".join(char if char.isalnum() or char in "._-" else "_" for char in op)
        stem = f"{next(self._numbers):04d}-{name[:_NAME_LENGTH]}-{digest(parts)[:12]}"
        described = [f"operation  {op}", f"signature  {signature}", f"origin     {origin}", "key"]
        described += [f"  {part:<16} {value}" for part, value in parts]
        files: dict[str, str | bytes] = {".txt": "\n".join(described) + "\n"}
        if graph is not None:
            files[".fx"] = graph().rstrip() + "\n"
        try:
            files[".mlir"] = stablehlo_text(stablehlo)
        except Exception:  # whatever MLIR has against it, the bytes are what was compiled
            files[".mlirbc"] = stablehlo
        self._write(Path(directory), stem, files)

    def _write(self, directory: Path, stem: str, files: dict[str, str | bytes]) -> None:
        # Not kept from the start: a forked child has a folder of its own.
        folder = directory / str(os.getpid())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for suffix, content in files.items():
                data = content.encode() if isinstance(content, str) else content
                (folder / f"{stem}{suffix}").write_bytes(data)
        except OSError as error:
            self._broken = True
            warnings.warn(
                f"torchneuron: programs are not dumped: {folder} cannot be written "
                f"({error.strerror}); set TORCHNEURON_DUMP to a directory that can.",
                stacklevel=2,
            )


def stablehlo_text(module: bytes) -> str:
    """A StableHLO module as text; loads MLIR if it is a portable artifact."""
    if not module.startswith(_BYTECODE):
        return module.decode()
    from torch_mlir import ir
    from torch_mlir._mlir_libs import _stablehlo

    stablehlo: Any = _stablehlo
    context: Any = ir.Context()
    with context:
        stablehlo.register_dialect(context)
        return str(stablehlo.deserialize_portable_artifact(context, module))
