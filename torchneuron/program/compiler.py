"""From a key and a module to an executable: memory, then disk, then the plugin's compiler.

Two levels, because an executable is compiled for a kind of device but loaded on one: the disk cache
is keyed by the program alone, the memory by program and device. Two threads that ask for the same
program compile it once. The device's index, what runs when, and the client belong to the caller.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from torchneuron.program.cache import DiskCache
from torchneuron.program.dump import Dumper
from torchneuron.program.errors import CompileError
from torchneuron.program.fork import after_fork_in_child
from torchneuron.program.key import Parts, digest
from torchneuron.program.metrics import METRICS, Metrics, Origin
from torchneuron.program.neff import Neff

MEMORY_ENTRIES = 4096


class Executable(Protocol):
    """What ``torchneuron._C.pjrt.Executable`` gives this module."""

    def serialize(self) -> bytes:
        """RuntimeError if the plugin has no such function."""

    def cost_analysis(self) -> dict[str, float]:
        """Empty if the plugin tells nothing."""


class Client(Protocol):
    """What ``torchneuron._C.pjrt.Client`` gives this module. Failures are RuntimeErrors."""

    def compile(self, mlir: bytes, device: int, flags: dict[str, str], /) -> Executable:
        """Compile a StableHLO module for one device."""

    def deserialize(self, serialized: bytes, device: int, /) -> Executable:
        """Load what ``Executable.serialize`` gave."""


class LoweredModule(Protocol):
    """What ``lowering.lower`` returns, as far as it is used here."""

    @property
    def module(self) -> bytes:
        """The StableHLO portable artifact, or MLIR text."""

    @property
    def rng_offset(self) -> int:
        """How much of the random stream the program uses."""

    @property
    def roads(self) -> Mapping[str, str]:
        """How each operation was lowered."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What to keep with the program besides, as JSON: known only once it is lowered."""

    @property
    def flags(self) -> Mapping[str, str]:
        """Compile options that the module needs besides the request's; a function of the module."""


Module = bytes | Callable[[], LoweredModule]


class Program(NamedTuple):
    """An executable on its device, the metadata it was stored with, where it came from, and the
    StableHLO module it was compiled from.

    Whatever the origin, the metadata is as JSON gives it back: lists for tuples, strings for keys.
    """

    executable: Any
    metadata: dict[str, Any]
    origin: Origin
    stablehlo: bytes


class _Flight:
    """A compilation under way, for the threads that wait for it."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.owner = threading.get_ident()
        self.done = threading.Event()
        self.program: Program | None = None
        self.error: Exception | None = None


class Compiler:
    """Gives programs for one PJRT client. Thread-safe; the child of a fork starts empty."""

    def __init__(
        self,
        client: Callable[[], Client],
        cache: DiskCache | None = None,
        *,
        metrics: Metrics = METRICS,
        dumper: Dumper | None = None,
        memory_entries: int = MEMORY_ENTRIES,
    ) -> None:
        """``client`` is called when the first program is needed; ``cache`` None is memory only."""
        self._client = client
        self._cache = cache
        self._metrics = metrics
        self._dumper = dumper or Dumper()
        self._memory_entries = memory_entries
        self._serialization_error = ""
        # What a forked child inherits: destroying it there would wait for threads it does not have.
        self._abandoned: list[object] = []
        self._start()
        after_fork_in_child(self._start_over)
        if cache is not None:
            metrics.provide(lambda: {"cache_corrupt": cache.stats.corrupt})

    def _start_over(self) -> None:
        self._abandoned.append(self._memory)
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._memory: OrderedDict[tuple[str, int], Program] = OrderedDict()
        self._flights: dict[str, _Flight] = {}

    @property
    def cache(self) -> DiskCache | None:
        """Where programs are kept between processes."""
        return self._cache

    @property
    def serialization_error(self) -> str:
        """Why this plugin's programs cannot be kept on disk; empty as far as they can."""
        return self._serialization_error

    def compile_program(
        self,
        key_parts: Parts,
        module: Module,
        metadata: Mapping[str, Any],
        device: int,
        *,
        op: str = "",
        signature: str = "",
        graph: Callable[[], str] | None = None,
        interface: Mapping[str, Any] | None = None,
        flags: Mapping[str, str] | None = None,
    ) -> Program:
        """The program of ``key_parts`` loaded on ``device``.

        ``module`` is the StableHLO module or a function that lowers one; it is called only if the
        program is neither in memory nor on disk, and then adds ``rng_offset`` and ``roads`` to the
        metadata. ``metadata`` and ``interface`` must be JSON and are kept with the program.
        ``op`` and ``signature`` describe it in metrics, dumps and errors (``signature`` as fields
        with ``, `` between them), ``graph`` gives its FX graph's text to a dump. ``flags`` are
        compile options of the plugin; they must be part of the key.

        Raises CompileError if the plugin refuses the module, and what ``module()`` raises.
        """
        key = digest(key_parts)
        while True:
            with self._lock:
                program = self._memory.get((key, device))
                if program is not None:
                    self._memory.move_to_end((key, device))
                    break
                flight = self._flights.get(key)
                if flight is None:
                    mine = self._flights[key] = _Flight(device)
                    break
            program = self._wait(flight, op)
            # What was made for another device is on disk now, if the plugin can serialize.
            if program is not None and flight.device == device:
                break
        if program is not None:
            self._metrics.add("cache_hits_memory")
            return program._replace(origin="memory")
        request = _Request(
            key_parts, module, metadata, device, op, signature, graph, interface, flags
        )
        return self._fly(key, mine, request)

    def forget(self) -> None:
        """Drop all programs in memory; those on disk stay."""
        with self._lock:
            self._memory.clear()

    def _wait(self, flight: _Flight, op: str) -> Program | None:
        """What the other thread compiled; None if it gave up without an answer."""
        if flight.owner == threading.get_ident():
            raise RuntimeError(f"compiling {op} asked for the very program being compiled")
        flight.done.wait()
        if flight.error is not None:
            raise flight.error
        return flight.program

    def _fly(self, key: str, flight: _Flight, request: _Request) -> Program:
        try:
            flight.program = self._load(key, request) or self._compile_in_turn(key, request)
        except Exception as error:
            flight.error = error
            raise
        finally:
            # After an interrupt neither is set, and a waiting thread takes the work over.
            with self._lock:
                self._flights.pop(key, None)
                if flight.program is not None:
                    self._memory[key, request.device] = flight.program
                    while len(self._memory) > self._memory_entries:
                        self._memory.popitem(last=False)
            flight.done.set()
        return flight.program

    def _compile_in_turn(self, key: str, request: _Request) -> Program:
        if self._cache is None:
            return self._compile(key, request)
        with self._cache.turn(key) as waited:
            found = self._load(key, request) if waited else None
            return found or self._compile(key, request)

    def _load(self, key: str, request: _Request) -> Program | None:
        neff = self._cache.get(key) if self._cache is not None else None
        if neff is None or self._cache is None:
            return None
        start = time.perf_counter()
        try:
            executable = self._client().deserialize(neff.executable, request.device)
        except RuntimeError:
            # Intact, but not for this plugin after all: compile again and overwrite it.
            self._cache.reject(key)
            return None
        seconds = time.perf_counter() - start
        self._metrics.add("load_seconds", seconds)
        self._metrics.record_program(request.op, request.signature, seconds, "disk")
        self._dump(request, "disk", neff.stablehlo)
        return Program(executable, dict(neff.metadata), "disk", neff.stablehlo)

    def _compile(self, key: str, request: _Request) -> Program:
        start = time.perf_counter()
        stablehlo, metadata, flags = _lowered(request)
        lowered = time.perf_counter()
        self._metrics.add("lowering_seconds", lowered - start)
        # Before compiling: what the compiler refuses is what one wants to see.
        self._dump(request, "compiled", stablehlo)
        client = self._client()
        start_compile = time.perf_counter()
        try:
            executable = client.compile(stablehlo, request.device, flags)
        except RuntimeError as error:
            raise CompileError(
                f"{request.op or 'a program'} could not be compiled: {error}\n"
                f"  signature: {request.signature}\n"
                "  Set TORCHNEURON_DUMP to a directory to keep the program that was refused."
            ) from error
        end = time.perf_counter()
        self._metrics.add("compile_seconds", end - start_compile)
        seconds = lowered - start + end - start_compile
        self._metrics.record_program(request.op, request.signature, seconds, "compiled")
        self._store(key, request, stablehlo, metadata, executable)
        return Program(executable, metadata, "compiled", stablehlo)

    def _store(
        self,
        key: str,
        request: _Request,
        stablehlo: bytes,
        metadata: dict[str, Any],
        executable: Executable,
    ) -> None:
        if self._cache is None or self._serialization_error:
            return
        try:
            serialized = executable.serialize()
        except RuntimeError as error:
            # Other failures may be this program's alone.
            if "UNIMPLEMENTED" in str(error):
                self._serialization_error = str(error)
            return
        try:
            cost = executable.cost_analysis()
        except RuntimeError:
            cost = {}
        interface = request.interface or {}
        self._cache.put(key, Neff(stablehlo, serialized, request.op, interface, metadata, cost))

    def _dump(self, request: _Request, origin: Origin, stablehlo: bytes) -> None:
        self._dumper.write(
            request.op, request.signature, origin, request.parts, request.graph, stablehlo
        )


class _Request(NamedTuple):
    parts: Parts
    module: Module
    metadata: Mapping[str, Any]
    device: int
    op: str
    signature: str
    graph: Callable[[], str] | None
    interface: Mapping[str, Any] | None
    flags: Mapping[str, str] | None


def _lowered(request: _Request) -> tuple[bytes, dict[str, Any], dict[str, str]]:
    """The module, the metadata as it will come back from disk, and the compile options."""
    metadata = dict(request.metadata)
    flags = dict(request.flags or {})
    if isinstance(request.module, bytes):
        stablehlo = request.module
    else:
        lowered = request.module()
        stablehlo = lowered.module
        metadata |= lowered.metadata
        flags |= lowered.flags
        metadata |= {"rng_offset": lowered.rng_offset, "roads": dict(lowered.roads)}
    normal: dict[str, Any] = json.loads(json.dumps(metadata))
    return stablehlo, normal, flags
