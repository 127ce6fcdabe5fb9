"""Compiled steps against hand-written JAX, PyTorch's CPU and Inductor, in turn in one run.

    python benchmarks/compile.py --json compile.json          # needs the extra "bench" for JAX

Groups:

    jax        a GPT training step, a CNN training step, a decode loop; the peer is the same by hand
               in JAX under `jax.jit`, on the XLA:CPU that JAX brings
    cpu        the same against PyTorch's CPU operators, eager
    inductor   the same against `torch.compile` on the CPU (reported; no limit)
    smollm2    SmolLM2-135M decoding with a static cache, compiled, against PyTorch's CPU, eager
    cold       the first step in a process of its own with empty caches; the peer is Inductor's
    warm       the first step in a process that finds what an earlier one compiled; the peer is that
               one's first step
    lengths    the GPT over ten lengths, another at every step, in a process of its own with
               `dynamic=True`, from the first call on; the peer is the same with a trace for each
               length; with empty caches, with the programs known, and the steps after the first
               of the latter, which is the one that traces; the same with lengths padded to one
               bucket
    overhead   one call of a compiled graph below TorchDynamo's guards, by its number of arguments
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import _compile_torch as models
import torch
from _harness import (
    Case,
    Limit,
    Results,
    Work,
    add_options,
    collector_off,
    duration,
    finish,
    paired,
    settle_of,
)

JAX, CPU, INDUCTOR, SMOLLM2 = "jax", "cpu", "inductor", "smollm2"
COLD, WARM, LENGTHS, OVERHEAD = "cold", "warm", "lengths", "overhead"
GROUPS = (JAX, CPU, INDUCTOR, SMOLLM2, COLD, WARM, LENGTHS, OVERHEAD)
LIMITS = [
    Limit(JAX, "geomean", 1.05),
    Limit(CPU, "worst", 1.0),
    Limit(SMOLLM2, "worst", 1.0),
    Limit(COLD, "worst", 0.5),
    Limit(WARM, "worst", 0.2),
    Limit(LENGTHS, "worst", 0.2),
    # The peer's time is the bound: 15 µs and 0.3 µs an argument.
    Limit(OVERHEAD, "worst", 1.0),
]
ARGUMENT_COUNTS = (2, 20, 200)
NEW_TOKENS = 16
LENGTHS_COUNT = 10
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def compiler(backend: str | None) -> Callable[[Any], Any]:
    """Return what compiles a function, or leaves it as it is."""
    if backend is None:
        return lambda function: function
    return partial(torch.compile, backend=backend)


def finished(work: Callable[[], Any]) -> Work:
    """Return `work` with its result waited for, as JAX gives results before they are computed."""
    return lambda: work().block_until_ready()


def steady_cases(group: str, options: argparse.Namespace, rounds: int) -> list[Case]:
    """Compare the three works with a peer after both have compiled all they need."""
    settle = settle_of(options.device)
    cases = []
    for name, work in models.WORKS.items():
        ours = work(options.device, compiler(options.device), options.seed)
        if group == JAX:
            import _compile_jax

            peer: Work = finished(_compile_jax.WORKS[name](options.seed))
        else:
            peer = work("cpu", compiler("inductor" if group == INDUCTOR else None), options.seed)
        for _ in range(3):
            ours(), peer()
        cases.append(paired(name, group, ours, peer, settle, rounds, round_seconds=0.3))
        show(cases[-1])
    return cases


def show(case: Case) -> None:
    """Tell on stderr that a case is done."""
    line = f"{case.group}: {case.name}: {duration(case.ours_s)}, peer {duration(case.peer_s)}"
    print(line, file=sys.stderr, flush=True)


def smollm2_cases(options: argparse.Namespace, rounds: int) -> list[Case]:
    """Compare the decoding of one token; the prompt's pass is not counted."""
    sys.path.insert(0, str(EXAMPLES))
    import smollm2_chat
    from transformers import StaticCache

    def decoder(device: str, compile: Callable[[Any], Any]) -> Work:
        model, tokenizer = smollm2_chat.load()
        model = model.to(device).eval()
        ids = tokenizer("The capital of France is", return_tensors="pt").input_ids.to(device)
        length = ids.shape[1]
        cache = StaticCache(config=model.config, max_cache_len=length + NEW_TOKENS)
        forward = compile(model.forward)
        positions = [torch.tensor([[length + i]], device=device) for i in range(NEW_TOKENS)]
        with torch.no_grad():
            first = model(ids, past_key_values=cache).logits[:, -1:].argmax(-1)

        @torch.no_grad()
        def loop() -> torch.Tensor:
            # The cache counts its tokens: decode the same ones every time.
            for layer in cache.layers:
                layer.cumulative_length.fill_(length)
            token = first
            for position in positions:
                token = forward(token, past_key_values=cache, position_ids=position).logits.argmax(
                    -1
                )
            return token

        return loop

    ours = decoder(options.device, compiler(options.device))
    peer = decoder("cpu", compiler(None))
    assert ours().cpu().equal(peer())
    settle = settle_of(options.device)
    case = paired("16 tokens", SMOLLM2, ours, peer, settle, rounds, round_seconds=0.3)
    show(case)
    return [case]


def first_step(name: str, backend: str, device: str, seed: int) -> dict[str, Any]:
    """Time the first step of a work, from the first call to its result; TorchDynamo is imported."""
    import torch._dynamo  # its import is the same for all backends

    work = models.WORKS[name](device, compiler(backend), seed)
    settle_of(device)()
    started = time.perf_counter()
    work().sum().item()
    seconds = time.perf_counter() - started
    metrics = getattr(torch.get_device_module(device), "metrics", None)
    kept = ("programs_compiled", "cache_hits_disk")
    return {"seconds": seconds, "counts": {k: metrics()[k] for k in kept} if metrics else None}


@torch.no_grad()
def import_compiler(device: str) -> None:
    """Have all modules imported that a compiled call needs; either kind of trace imports some."""
    import torch._dynamo

    for dynamic in (False, True):
        torch.compile(torch.nn.LayerNorm(8).to(device), backend=device, dynamic=dynamic)(
            torch.randn(2, 8).to(device)
        )
        torch._dynamo.reset()


# Ways to compile for lengths that vary: the peer's, and ours.
LENGTHS_OPTIONS: dict[str, dict[str, Any]] = {
    "static": {"dynamic": False},
    "dynamic": {"dynamic": True},
    "bucket": {"dynamic": True, "options": {"buckets": {1: [models.LENGTH]}}},
}


def lengths_loop(kind: str, device: str, seed: int) -> dict[str, Any]:
    """Time a loop over ten lengths, another at every step, from the first call to the last result."""
    import_compiler(device)
    torch._dynamo.config.recompile_limit = 2 * LENGTHS_COUNT
    settle = settle_of(device)
    torch.manual_seed(seed)
    model = models.GPT(models.WIDTH, models.LAYERS, models.HEADS, models.LENGTH).to(device)
    lengths = [models.LENGTH - 3 * i for i in range(LENGTHS_COUNT)]
    batches = [torch.randint(models.VOCABULARY, (models.BATCH, n)).to(device) for n in lengths]
    run = torch.compile(model, backend=device, **LENGTHS_OPTIONS[kind])
    settle()
    started = time.perf_counter()
    ended = []
    with torch.no_grad():
        for batch in batches:
            run(batch)
            settle()
            ended.append(time.perf_counter() - started)
    return {"seconds": ended[-1], "later": ended[-1] - ended[0]}


def lengths_cases(options: argparse.Namespace) -> list[Case]:
    """Compare one symbolic trace, with programs for each length or one for all, with a trace for each
    length, without and with known programs.
    """
    times = {}
    for kind in LENGTHS_OPTIONS:
        with tempfile.TemporaryDirectory(prefix="torchneuron-compile-") as caches:
            for known in ("empty caches", "known programs"):
                outcome = child(
                    kind, options.device, options.device, options.seed, caches, "--lengths"
                )
                times[known, kind] = outcome["seconds"]
            times["later steps", kind] = outcome["later"]
    cases = []
    for kind, suffix in (("dynamic", ""), ("bucket", ", a bucket")):
        for known in ("empty caches", "known programs", "later steps"):
            ours, peer = times[known, kind], times[known, "static"]
            cases.append(Case(known + suffix, LENGTHS, ours, peer, ours / peer))
            show(cases[-1])
    return cases


def child(
    name: str, backend: str, device: str, seed: int, caches: str, mode: str = "--first-step"
) -> dict[str, Any]:
    """Run `first_step`, or what else `mode` asks for, in a process of its own with these caches."""
    command = [sys.executable, __file__, mode, name, "--backend", backend]
    command += ["--device", device, "--seed", str(seed)]
    environment = os.environ | {
        "TORCHNEURON_CACHE_DIR": f"{caches}/programs",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/torch",
    }
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def process_cases(groups: list[str], options: argparse.Namespace, repeats: int) -> list[Case]:
    """Compare first steps: ours cold with Inductor's, ours warm with ours cold."""
    cases = []
    for name in models.WORKS:
        times: dict[str, list[float]] = {"inductor": [], COLD: [], WARM: []}
        for _ in range(repeats):
            with tempfile.TemporaryDirectory(prefix="torchneuron-compile-") as caches:
                run = partial(child, name, seed=options.seed, caches=caches)
                if COLD in groups:
                    times["inductor"].append(run("inductor", "cpu")["seconds"])
                for kind in (COLD, WARM):
                    outcome = run(options.device, options.device)
                    times[kind].append(outcome["seconds"])
            counts = outcome["counts"]
            if counts is not None and counts["programs_compiled"]:
                raise RuntimeError(f"the second process compiled: {counts}")
        medians = {kind: statistics.median(found) for kind, found in times.items() if found}
        for group, ours, peer in ((COLD, COLD, "inductor"), (WARM, WARM, COLD)):
            if group in groups:
                ratio = medians[ours] / medians[peer]
                cases.append(Case(name, group, medians[ours], medians[peer], ratio))
                show(cases[-1])
    return cases


def overhead_cases(options: argparse.Namespace) -> list[Case]:
    """Time calls of a compiled graph; the peer is the bound on them."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from torchneuron.compile.compiled import CompiledGraph
    from torchneuron.compile.options import Options

    settle = settle_of(options.device)
    cases = []
    for count in ARGUMENT_COUNTS:
        tensors = [torch.ones(4, device=options.device) for _ in range(count)]
        graph = make_fx(lambda *given: [sum(given)], tracing_mode="fake")(*tensors)
        run = CompiledGraph(graph, "inference", Options()).runner
        run(list(tensors))
        times = []
        with collector_off():
            for _ in range(300):
                arguments = list(tensors)
                settle()
                started = time.perf_counter()
                run(arguments)
                times.append(time.perf_counter() - started)
        ours, bound = statistics.median(times), 15e-6 + 0.3e-6 * count
        cases.append(Case(f"{count} arguments", OVERHEAD, ours, bound, ours / bound))
        show(cases[-1])
    return cases


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--first-step", help=argparse.SUPPRESS)
    parser.add_argument("--lengths", help=argparse.SUPPRESS)
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_step:
        outcome = first_step(options.first_step, options.backend, options.device, options.seed)
        print(json.dumps(outcome))
        return 0

    if options.lengths:
        print(json.dumps(lengths_loop(options.lengths, options.device, options.seed)))
        return 0

    groups = options.groups.split(",")
    rounds = 5 if options.quick else 15
    cases: list[Case] = []
    for group in (JAX, CPU, INDUCTOR):
        if group in groups:
            cases += steady_cases(group, options, rounds)
    if SMOLLM2 in groups:
        cases += smollm2_cases(options, rounds)
    if COLD in groups or WARM in groups:
        cases += process_cases(groups, options, repeats=1 if options.quick else 3)
    if LENGTHS in groups:
        cases += lengths_cases(options)
    if OVERHEAD in groups:
        cases += overhead_cases(options)
    limits = [limit for limit in LIMITS if limit.group in groups]
    results = Results("compile", options.device, cases, (JAX,), limits, peer="peer")
    return finish(results, options)


if __name__ == "__main__":
    raise SystemExit(main())
