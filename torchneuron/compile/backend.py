"""The TorchDynamo backend ``neuron``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import fx

from torchneuron.compile import device_interface, failure
from torchneuron.compile.compiled import CompiledGraph
from torchneuron.compile.options import Options, parse
from torchneuron.lowering.errors import LoweringError


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
    device_interface.register()
    backend = aot_autograd(
        fw_compiler=partial(_compile, kind="forward", options=chosen),
        bw_compiler=partial(_compile, kind="backward", options=chosen),
        inference_compiler=partial(_compile, kind="inference", options=chosen),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    compiled: Callable[..., Any] = backend(gm, example_inputs)
    return compiled


def _compile(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, kind: str, options: Options
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
    runner: Callable[..., Any] = compiled.runner
    return runner
