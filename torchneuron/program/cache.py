"""The disk cache: one NEFF file per program, bounded, shared by any number of processes.

    <dir>/<key>.neff    a program; its modification time says when it was last used
    <dir>/<key>.turn    held by the process that compiles the program (turns.py)
    <dir>/usage         how many bytes the programs take, kept under a file lock
    <dir>/*.tmp         a file being written; an old one is the rest of a crashed process

A file appears by rename, so a reader sees all of it or nothing. Whoever reads it checks it; a file
that is not intact is removed and counts as absent. Writing adds to ``usage``, and only when that
passes the bound is the directory listed: the least recently used programs go until a tenth is free,
and ``usage`` becomes what was counted. Thus ``usage`` may be a little wrong (after a crash, or when
two processes write the same program) but never for long.

The cache never fails a run. When the directory cannot be used or the disk is full, it warns once
(CacheWarning), stops writing and goes on.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from torchneuron.program.errors import CacheWarning, NeffError
from torchneuron.program.fork import after_fork_in_child
from torchneuron.program.neff import Neff
from torchneuron.program.turns import turn
from torchneuron.settings import Settings, settings

_SUFFIX = ".neff"
_TEMPORARY = ".tmp"
_TURN = ".turn"
_USAGE = "usage"
_STALE_SECONDS = 3600.0
# Marking a use costs a write; within this time one mark is enough for the order of eviction.
_TOUCH_SECONDS = 60.0
_LOCK_SECONDS = 1.0
_LOW_WATER = 0.9


class CacheInfo(NamedTuple):
    """What a directory holds, by listing it."""

    directory: str
    entries: int
    bytes: int
    max_bytes: int


@dataclass
class CacheStats:
    """What this process's cache object has done."""

    hits: int = 0
    misses: int = 0
    writes: int = 0
    corrupt: int = 0
    evicted: int = 0


class DiskCache:
    """The programs in ``directory``, at most ``max_bytes`` of them. Safe with threads and forks.

    ``directory`` None (no home directory) gives a cache that warns once and holds nothing.
    """

    def __init__(self, directory: str | None, max_bytes: int) -> None:
        """Touches nothing yet; the directory is made by the first ``put``."""
        self.directory = directory
        self.max_bytes = max_bytes
        self.stats = CacheStats()
        self.disabled = ""  # why nothing is written any more
        self._unaccounted = 0  # bytes written that `usage` does not have yet
        self._lock = threading.Lock()
        after_fork_in_child(self._renew_lock)
        if directory is None:
            self._disable("there is no home directory; set TORCHNEURON_CACHE_DIR")

    def get(self, key: str) -> Neff | None:
        """The program, or None if there is none that is intact."""
        if self.directory is None:
            return None
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                data = file.read()
                used = os.fstat(file.fileno()).st_mtime
            neff = Neff.from_bytes(data)
        except FileNotFoundError:
            self._count("misses")
            return None
        except NeffError:
            self.reject(key)
            return None
        except OSError as error:
            self._count("misses")
            self._disable(f"{path} cannot be read ({error.strerror})")
            return None
        self._count("hits")
        if time.time() - used > _TOUCH_SECONDS:
            with suppress(OSError):  # evicted meanwhile, or not ours to write
                os.utime(path)
        return neff

    def put(self, key: str, neff: Neff) -> bool:
        """Keep a program, unless it is bigger than the whole bound; whether it is on disk now."""
        data = neff.to_bytes()
        if self.directory is None or self.disabled or len(data) > self.max_bytes:
            return False
        temporary = os.path.join(self.directory, f"{key[:8]}-{os.urandom(8).hex()}{_TEMPORARY}")
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    file.write(data)
                os.replace(temporary, self._path(key))
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            self._count("writes")
            self._add_usage(len(data))
        except OSError as error:
            self._disable(f"{self.directory} cannot be written ({error.strerror})")
            return False
        return True

    def read(self, key: str) -> bytes | None:
        """The program's file as it is, or None."""
        with suppress(OSError):
            if self.directory is not None:
                with open(self._path(key), "rb") as file:
                    return file.read()
        return None

    @contextmanager
    def turn(self, key: str) -> Iterator[bool]:
        """Hold while compiling a program; yields whether another process was at it, which may have
        put it here by now.
        """
        if self.directory is None or self.disabled:
            yield False
            return
        with suppress(OSError):
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
        with turn(f"{self.directory}/{key}{_TURN}") as waited:
            yield waited

    def reject(self, key: str) -> None:
        """Drop a program that turned out to be unusable, and count it as corrupt and a miss."""
        self._count("misses")
        self._count("corrupt")
        with suppress(OSError):
            os.unlink(self._path(key))

    def info(self) -> CacheInfo:
        """List the directory."""
        entries = list(self._entries())
        total = sum(size for _, size, _ in entries)
        return CacheInfo(self.directory or "", len(entries), total, self.max_bytes)

    def clear(self) -> CacheInfo:
        """Remove every program and nothing else; what was removed. OSError if that fails."""
        removed = removed_bytes = 0
        for _, size, path in list(self._entries()):
            with suppress(FileNotFoundError):
                os.unlink(path)
                removed += 1
                removed_bytes += size
        if self.directory is not None:
            self._remove_temporaries(older_than=0.0)
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.directory, _USAGE))
        return CacheInfo(self.directory or "", removed, removed_bytes, self.max_bytes)

    # --- the bound -----------------------------------------------------------------------------

    def _add_usage(self, added: int) -> None:
        assert self.directory is not None
        usage = os.open(os.path.join(self.directory, _USAGE), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with _locked(usage) as locked:
                self._unaccounted += added
                if not locked:  # a process stands still while holding it: leave it to the next put
                    return
                added, self._unaccounted = self._unaccounted, 0
                text = os.pread(usage, 32, 0).strip()
                total = int(text) + added if text.isdigit() else None
                if total is None or total > self.max_bytes:
                    total = self._evict()
                os.pwrite(usage, b"%-20d" % total, 0)
        finally:
            os.close(usage)

    def _evict(self) -> int:
        """Count what there is and, if that is too much, remove the least recently used."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        if total > self.max_bytes:
            for _, size, path in entries[:-1]:  # never the one just written
                with suppress(FileNotFoundError):
                    os.unlink(path)
                total -= size
                self._count("evicted")
                if total <= self.max_bytes * _LOW_WATER:
                    break
        self._remove_temporaries(_STALE_SECONDS)
        return total

    def _entries(self) -> Iterator[tuple[float, int, str]]:
        """(last use, bytes, path) of every program."""
        yield from self._listed(_SUFFIX)

    def _remove_temporaries(self, older_than: float) -> None:
        for written, _, path in self._listed(_TEMPORARY):
            if time.time() - written >= older_than:
                with suppress(OSError):
                    os.unlink(path)

    def _listed(self, suffix: str) -> Iterator[tuple[float, int, str]]:
        if self.directory is None:
            return
        with suppress(FileNotFoundError), os.scandir(self.directory) as listing:
            for item in listing:
                if item.name.endswith(suffix):
                    with suppress(FileNotFoundError):  # another process evicts too
                        status = item.stat(follow_symlinks=False)
                        yield status.st_mtime, status.st_size, item.path

    # --- the rest ------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        assert self.directory is not None
        return f"{self.directory}/{key}{_SUFFIX}"

    def _count(self, name: str) -> None:
        with self._lock:
            setattr(self.stats, name, getattr(self.stats, name) + 1)

    def _disable(self, reason: str) -> None:
        with self._lock:
            first, self.disabled = not self.disabled, self.disabled or reason
        if first:
            warnings.warn(
                f"torchneuron: compiled programs are no longer kept on disk: {reason}.",
                CacheWarning,
                stacklevel=4,
            )

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


def open_cache(chosen: Settings = settings) -> DiskCache | None:
    """The cache that the settings ask for; None if it is switched off."""
    if not chosen.cache or chosen.cache_size == 0:
        return None
    return DiskCache(chosen.cache_dir, chosen.cache_size)


@contextmanager
def _locked(file: int) -> Iterator[bool]:
    """Hold the file's lock; yields False if it cannot be had within a second.

    A filesystem without locks gives True: a rare wrong count is better than a cache without bound.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                yield False
                return
            time.sleep(0.001)
        except OSError:
            break
    try:
        yield True
    finally:
        with suppress(OSError):
            # Explicitly, and not by closing: a fork meanwhile may have copied the descriptor.
            fcntl.flock(file, fcntl.LOCK_UN)
