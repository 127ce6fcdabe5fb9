"""The TorchDynamo backend ``neuron``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import fx
from torch._functorch import config as functorch_config

from torchneuron.compile import cached, device_interface, failure, floats, higher_order
from torchneuron.compile.alone import take_apart
from torchneuron.compile.bucketed import Chosen, bucketed
from torchneuron.compile.compiled import CompiledGraph
from torchneuron.compile.frozen import freeze, static_arguments
from torchneuron.compile.options import Options, parse
from torchneuron.compile.segments import SegmentedGraph
from torchneuron.lowering.errors import LoweringError

# torch.compile looks the backend up, and so loads this module, before it traces anything.
higher_order.register()


def neuron(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that TorchDynamo captured; what ``torch.compile(backend="neuron")`` calls.

    AOTAutograd makes a forward and a backward graph of it (or one for inference), each of which
    becomes one program for every combination of argument shapes. ``mode`` and ``options`` are those
    of ``torch.compile``; see ``torchneuron.compile.options``.

        model = torch.compile(model.to("neuron"), backend="neuron")
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    chosen = parse(mode, options)
    example_inputs = floats.specialize(gm, example_inputs)
    device_interface.register()
    padded: Chosen = {}
    compilers: dict[str, Any] = {
        name: cached.keeping(partial(_compile, kind=kind, options=chosen, padded=padded))
        for name, kind in (
            ("fw_compiler", "forward"),
            ("bw_compiler", "backward"),
            ("inference_compiler", "inference"),
        )
    }
    kept = cached.cache_of(chosen) if cached.may_keep(gm, example_inputs) else cached.no_cache()
    backend = aot_autograd(
        **compilers,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    # Without it, tokens that order side effects would be arguments and results of the graphs.
    with kept, functorch_config.patch(unlift_effect_tokens=True):
        compiled: Callable[..., Any] = backend(gm, example_inputs)
    return compiled


def _compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any] = (),
    *,
    kind: str,
    options: Options,
    padded: Chosen,
) -> Callable[..., Any]:
    if options.freeze and kind == "inference":
        whole = replace(options, freeze=False)
        compile_half = partial(_compile, kind=kind, options=whole, padded=padded)
        if frozen := freeze(gm, static_arguments(), compile_half):
            return frozen
    if alone := take_apart(gm, options):
        compile_piece = partial(_compile_whole, kind=kind, options=options, padded=padded)
        return SegmentedGraph(gm, kind, alone, compile_piece)
    return _compile_whole(gm, kind=kind, options=options, padded=padded)


def _compile_whole(
    gm: fx.GraphModule, *, kind: str, options: Options, padded: Chosen
) -> Callable[..., Any]:
    try:
        compiled = CompiledGraph(gm, kind, options)
    except LoweringError as error:
        if options.fallback != "eager":
            failure.advise(error, f"a {kind} graph")
            raise
        return failure.EagerGraph(f"a {kind} graph", gm.forward, error)
    if not compiled.captured.uses_device:
        # Tensors that the user keeps on the CPU stay there.
        return gm.forward
    if options.buckets and compiled.captured.symbolic:
        return bucketed(compiled, gm, kind, options, padded)
    return compiled
