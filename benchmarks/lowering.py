"""How long the lowering takes: from an FX graph to the StableHLO module that the plugin compiles.

    python benchmarks/lowering.py [--json FILE] [--check] [--quick]

Single operators of all roads, each as a program of its own, and one graph of 1,000 nodes: blocks of a
transformer. Nothing is compiled or run; there is no peer. Medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from torchneuron.lowering import FreshOutput, ProgramSpec, StorageSpec, TensorInput, lower

aten = torch.ops.aten

MOST_MS_PER_PROGRAM = 40.0
MOST_MS_PER_NODE = 1.0
NODES = 1000

Program = tuple[fx.GraphModule, ProgramSpec]


def program(build: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor]) -> Program:
    """The graph of ATen ops that ``build`` runs, with dense inputs and one output."""
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(build, tracing_mode="fake")(*inputs)
    (result,) = next(node for node in graph.graph.nodes if node.op == "output").args
    value = result.meta["val"]
    graph.graph.find_nodes(op="output")[0].args = ((result,),)
    graph.recompile()
    storages = tuple(StorageSpec(x.dtype, x.numel()) for x in inputs)
    views = tuple(
        TensorInput(index, x.dtype, tuple(x.shape), tuple(x.stride()), False)
        for index, x in enumerate(inputs)
    )
    output = FreshOutput(value.dtype, tuple(value.shape), tuple(torch.empty(value.shape).stride()))
    return graph, ProgramSpec(storages, views, (output,))


def single_ops() -> dict[str, Program]:
    """Programs of one operator, from all families and roads."""
    x, w, image = torch.rand(8, 16), torch.rand(16, 16), torch.rand(2, 4, 8, 8)
    index = torch.arange(8)
    kernel = torch.rand(4, 4, 3, 3)
    query = torch.rand(1, 2, 8, 16)
    found: dict[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]] = {
        "add": (lambda a: aten.add.Tensor(a, a), [x]),
        "mm": (aten.mm.default, [x, w]),
        "addmm": (aten.addmm.default, [x, x, w]),
        "gelu": (aten.gelu.default, [x]),
        "sum.dim": (lambda a: aten.sum.dim_IntList(a, [1]), [x]),
        "var": (lambda a: aten.var.correction(a, [1]), [x]),
        "softmax": (lambda a: aten._softmax.default(a, -1, False), [x]),
        "layer_norm": (lambda a: aten.native_layer_norm.default(a, [16], None, None, 1e-5)[0], [x]),
        "convolution": (
            lambda a, k: aten.convolution.default(
                a, k, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1
            ),
            [image, kernel],
        ),
        "max_pool2d": (lambda a: aten.max_pool2d_with_indices.default(a, [2, 2])[0], [image]),
        "upsample_bilinear2d": (
            lambda a: aten.upsample_bilinear2d.default(a, [16, 16], False),
            [image],
        ),
        "embedding": (aten.embedding.default, [w, index]),
        "index": (lambda a, i: aten.index.Tensor(a, [i]), [x, index]),
        "gather": (lambda a, i: aten.gather.default(a, 0, i), [x, index[:, None]]),
        "scatter_add": (
            lambda a, i: aten.scatter_add.default(a, 0, i, a[:, :1]),
            [x, index[:, None]],
        ),
        "sort": (lambda a: aten.sort.default(a)[0], [x]),
        "topk": (lambda a: aten.topk.default(a, 3)[0], [x]),
        "cumsum": (lambda a: aten.cumsum.default(a, 1), [x]),
        "cat": (lambda a: aten.cat.default([a, a], 1), [x]),
        "attention": (
            lambda q: aten._scaled_dot_product_fused_attention_overrideable.default(q, q, q)[0],
            [query],
        ),
        "linalg_cholesky": (lambda a: aten.linalg_cholesky_ex.default(a)[0], [w @ w.T]),
        "fft": (lambda a: aten._fft_r2c.default(a, [1], 0, True), [x]),
        "i0": (aten.i0.default, [x]),
        "erfinv": (aten.erfinv.default, [x]),
    }
    return {name: program(build, inputs) for name, (build, inputs) in found.items()}


def large_graph(nodes: int) -> Program:
    """About ``nodes`` nodes of transformer blocks: normalisation, products, attention, GELU."""

    def build(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(nodes // _NODES_OF_BLOCK):
            x = _block(x, w)
        return x

    return program(build, [torch.rand(8, 16), torch.rand(16, 16)])


def _block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    normal = aten.native_layer_norm.default(x, [16], None, None, 1e-5)[0]
    query, key, value = (aten.mm.default(normal, w) for _ in range(3))
    scores = aten.mul.Tensor(aten.mm.default(query, aten.t.default(key)), 0.25)
    weights = aten._softmax.default(scores, -1, False)
    x = aten.add.Tensor(x, aten.mm.default(aten.mm.default(weights, value), w))
    hidden = aten.gelu.default(aten.addmm.default(x, x, w))
    return aten.add.Tensor(x, aten.mm.default(hidden, w))


# native_layer_norm comes with the getitem that takes its first result, and two that do not.
_NODES_OF_BLOCK = 17


def median_seconds(work: Callable[[], Any], rounds: int) -> float:
    """The median time of ``work``, after one round that is not counted."""
    work()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> int:
    """Run from the command line; the exit code is 1 when a limit is missed and asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a limit is missed")
    options = parser.parse_args()
    rounds = 3 if options.quick else 9
    single = {
        name: 1e3 * median_seconds(lambda found=found: lower(*found), rounds)
        for name, found in single_ops().items()
    }
    graph = large_graph(NODES)
    count = sum(1 for node in graph[0].graph.nodes if node.op == "call_function")
    whole = 1e3 * median_seconds(lambda: lower(*graph), max(3, rounds // 3))
    for name, milliseconds in sorted(single.items(), key=lambda item: item[1]):
        print(f"  {name:<22}{milliseconds:>8.2f} ms")
    print(f"  graph of {count} nodes {whole:>10.1f} ms")
    figures = {
        "single_worst_ms": (max(single.values()), MOST_MS_PER_PROGRAM),
        "graph_ms_per_node": (whole / count, MOST_MS_PER_NODE),
    }
    for name, (measured, limit) in figures.items():
        mark = "kept" if measured <= limit else "MISSED"
        print(f"{name:<20} {measured:>8.2f}  at most {limit:g}  {mark}")
    if options.json is not None:
        content = {"benchmark": "lowering", "torch": torch.__version__, "single_ms": single}
        limits = {name: {"measured": m, "at_most": at} for name, (m, at) in figures.items()}
        nodes = {"nodes": count, "graph_ms": whole, "limits": limits}
        options.json.write_text(json.dumps(content | nodes, indent=2) + "\n")
    kept = all(measured <= limit for measured, limit in figures.values())
    return 0 if kept or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
