"""Compiled graphs in AOTAutogradCache: one adapter to PyTorch's cache of traced and partitioned graphs.

On a hit PyTorch traces nothing after TorchDynamo; the programs themselves come from our own disk cache.
The cache keeps objects of PyTorch's ``OutputCode`` only, which is why there is one here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._inductor.output_code import OutputCode

from torchneuron.compile.bucketed import BucketedGraph, SavedBuckets
from torchneuron.compile.compiled import CompiledGraph, SavedGraph
from torchneuron.compile.options import Options
from torchneuron.program.key import digest
from torchneuron.program.session import toolchain

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


class CompiledCode(OutputCode):
    """A compiled graph, or what runs in place of one; only the first kind can be kept."""

    def __init__(self, run: Callable[..., Any]) -> None:
        """``run`` takes one list, or the arguments themselves if it has no ``_boxed_call``."""
        super().__init__()
        self._boxed_call = True
        self._saved: SavedGraph | SavedBuckets | None = None
        self._use(run)

    def _use(self, run: Callable[..., Any] | None) -> None:
        self._run = run
        self._boxed = getattr(run, "_boxed_call", False)
        self._call = run.runner if isinstance(run, CompiledGraph) else run

    def __call__(self, inputs: Any) -> Any:
        """Run the graph."""
        assert self._call is not None, "post_compile comes first"
        return self._call(inputs) if self._boxed else self._call(*inputs)

    def prepare_for_serialization(self) -> None:
        """Become what pickle can keep."""
        if not isinstance(self._run, (CompiledGraph, BucketedGraph)):
            raise BypassAOTAutogradCache("a graph that is cut into programs is not kept")
        self._saved = self._run.save()
        self._use(None)

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Become a callable again."""
        if self._run is None:
            assert self._saved is not None
            self._use(self._saved.restore())


def keeping(compile: Compile) -> SerializableAOTDispatchCompiler:
    """The compiler for one kind of graph, whose results AOTAutogradCache can keep.

    TorchDynamo wraps what a compiler of backward graphs gives, and of that it takes over only what the
    object itself says, such as ``CompiledCode`` that it takes one list.
    """
    return SerializableAOTDispatchCompiler(
        CompiledCode, lambda gm, example_inputs: CompiledCode(compile(gm, example_inputs))
    )


@contextmanager
def cache_of(options: Options) -> Iterator[None]:
    """PyTorch's settings while it looks up or makes an entry of ours.

    Entries hold their graphs ("bundled"), which are complete when the entry is written (no backward
    that is lowered later), under keys that name this package's sources, toolchain and options.
    """
    tag = f"torchneuron {digest(toolchain().parts(repr(options).encode()))}"
    given = torch.compiler.config.cache_key_tag
    with (
        functorch_config.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True),
        torch.compiler.config.patch(  # type: ignore[attr-defined]
            cache_key_tag=f"{given} {tag}" if given else tag
        ),
    ):
        yield


def no_cache() -> AbstractContextManager[None]:
    """PyTorch's settings for a graph that the cache may not have."""
    settings: AbstractContextManager[None] = functorch_config.patch(enable_autograd_cache=False)
    return settings


def may_keep(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether the cache may have the graph that TorchDynamo captured.

    It takes a tensor on the device: others are as well another backend's. And it gives back no float
    that is made of its arguments, which TorchDynamo writes as a tensor: AOTAutograd makes a constant of
    it, with a guard that an entry of the cache does not have.
    """
    on_device = any(
        isinstance(value, torch.Tensor) and value.device.type == "neuron"
        for value in example_inputs
    )
    floats = gm.graph.find_nodes(op="call_function", target=torch.scalar_tensor)
    return on_device and not any(node.all_input_nodes for node in floats)
