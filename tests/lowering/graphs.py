"""Runs whole graphs, as AOTAutograd makes them for the CPU, through the lowering on XLA:CPU.

`check(function, *inputs)` compiles a function with Dynamo and AOTAutograd, runs the forward and the
backward graph and compares with eager. `check_graph` does without: it traces a function that calls
the operators themselves.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from tests.lowering.harness import execute
from torchneuron.compile.rng_state import correct_states
from torchneuron.lowering import FreshOutput, ProgramSpec, StorageSpec, TensorInput, lower
from torchneuron.lowering.spec import StaticInput


def _output(value: Any) -> FreshOutput:
    if not isinstance(value, torch.Tensor):
        return FreshOutput(torch.int64, (), ())
    sizes = tuple(int(size) for size in value.shape)
    strides = tuple(int(stride) for stride in value.stride())
    if not torch.ops.aten.is_non_overlapping_and_dense(torch.empty_strided(sizes, strides)):
        strides = torch.empty(sizes, device="meta").stride()
    return FreshOutput(value.dtype, sizes, tuple(strides))


def run_graph(
    gm: fx.GraphModule, args: Sequence[Any], examples: Sequence[Any], seed: int = 0, offset: int = 0
) -> list[Any]:
    """The graph's outputs, which look like `examples`, computed on XLA:CPU."""
    storages, inputs = [], []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            storages.append(arg.detach().contiguous().reshape(-1))
            strides = torch.empty(arg.shape, device="meta").stride()
            inputs.append(
                TensorInput(len(storages) - 1, arg.dtype, tuple(arg.shape), tuple(strides))
            )
        else:
            inputs.append(StaticInput(arg))
    places = [i for i, example in enumerate(examples) if example is not None]
    outputs = tuple(_output(examples[i]) for i in places)
    spec = ProgramSpec(
        tuple(StorageSpec(s.dtype, s.numel()) for s in storages), tuple(inputs), outputs
    )
    given = pytree.tree_leaves(gm.graph.output_node().args)
    trimmed = fx.GraphModule(gm, _with_outputs(gm.graph, [given[i] for i in places]))
    flat = execute(lower(trimmed, spec), spec, storages, seed, offset)
    results: list[Any] = [None] * len(examples)
    for place, value, out in zip(places, flat, outputs, strict=True):
        dense = torch.as_strided(value, out.sizes, out.strides)
        results[place] = dense if isinstance(examples[place], torch.Tensor) else dense.item()
    return results


def _with_outputs(graph: fx.Graph, kept: Sequence[Any]) -> fx.Graph:
    copy, mapping = fx.Graph(), {}
    copy.graph_copy(graph, mapping)
    copy.output(fx.map_arg(tuple(kept), lambda node: mapping[node]))
    return copy


class Recorder:
    """A Dynamo backend that lowers the graphs and keeps them; each run draws from another seed."""

    def __init__(self, partition_fn: Any = None):
        self.graphs: list[fx.GraphModule] = []
        self.seed = 0
        extra = {"partition_fn": partition_fn} if partition_fn else {}
        self.backend = aot_autograd(fw_compiler=self.compile, bw_compiler=self.compile, **extra)

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        self.graphs.append(gm)
        correct_states(gm)
        (outputs,) = gm.graph.output_node().args
        examples = [item.meta["val"] if isinstance(item, fx.Node) else item for item in outputs]

        def run(*args: Any) -> list[Any]:
            self.seed += 1
            return run_graph(gm, args, examples, self.seed)

        return make_boxed_func(run)

    def targets(self) -> set[str]:
        """Names of the higher-order operators in the graphs."""
        found = set()
        for gm in self.graphs:
            for module in gm.modules():
                if isinstance(module, fx.GraphModule):
                    for node in module.graph.nodes:
                        if isinstance(node.target, torch._ops.HigherOrderOperator):
                            found.add(node.target.name())
        return found


def check_graph(function: Callable[..., Any], *inputs: torch.Tensor) -> list[Any]:
    """Compare the graph of a functional function with the function run eagerly."""
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    expected = pytree.tree_leaves(function(*(x.clone() for x in inputs)))
    results = run_graph(gm, inputs, expected)
    torch.testing.assert_close(results, expected)
    return results


def leaves(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def gradients(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[Any]:
    wanted = [x for x in inputs if x.requires_grad]
    loss = sum(
        (out.double() * torch.linspace(0.5, 1.5, out.numel()).reshape(out.shape)).sum()
        for out in outputs
        if out.requires_grad
    )
    return list(torch.autograd.grad(loss, wanted, allow_unused=True))


def check(
    function: Callable[..., Any],
    *inputs: Any,
    uses: str,
    reference: Callable[..., Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> Recorder:
    """Compare the compiled function's results and gradients with eager's, or with `reference`'s;
    `uses` is the operator that the graphs must hold.
    """
    torch._dynamo.reset()
    recorder = Recorder()
    expected = (reference or function)(*inputs)
    compiled = torch.compile(function, backend=recorder.backend, fullgraph=True, dynamic=False)
    result = compiled(*inputs)
    torch.testing.assert_close(result, expected, rtol=rtol, atol=atol)
    if any(x.requires_grad for x in leaves(inputs)):
        torch.testing.assert_close(
            gradients(leaves(result), leaves(inputs)),
            gradients(leaves(expected), leaves(inputs)),
            rtol=rtol,
            atol=atol,
        )
    assert uses in recorder.targets(), recorder.targets()
    return recorder
