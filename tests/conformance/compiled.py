"""Runs op_db under torch.compile(backend="neuron", fullgraph=True) and compares it with the CPU.

    python -m tests.conformance.compiled [--ops REGEX] [--restart] [--update] [--timeout 120]

Float32, the first sample of each op, with gradients where the op has them. The ops run in worker processes, so that
one which crashes or hangs is a row like any other; an interrupted run goes on where it stopped. Ends with an error
if a row is not what compiled.json expects, be it better or worse; --update writes compiled.json anew.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.conformance import workers

RESULTS = workers.ROOT / "build" / "conformance" / "compiled.jsonl"
# What op_db's random ops set, where op_db can.
_SEED = 42
_EXPECTED = Path(__file__).with_name("compiled.json")


@dataclass(frozen=True)
class Row:
    """What became of one op.

    ``status`` is "ok" (the forward, and the backward where the op has one), "forward" (only that),
    "none", or "eager" for an op that the device does not get right without torch.compile either.
    """

    op: str
    status: str
    reason: str = ""


def read() -> dict[str, str]:
    """op -> "ok", or a status and, after a colon, the reason."""
    content: dict[str, str] = json.loads(_EXPECTED.read_text())
    return content


def slice_of(names: Sequence[str], count: int) -> list[str]:
    """``count`` ops of all, always the same for the same names."""
    return sorted(Random(0).sample(sorted(names), min(count, len(names))))


# ---- one op, in this process


def run_op(name: str) -> Row:
    """Compile and run the first sample of an op, with its gradients if it has any."""
    import torch

    from tests.conformance import sweep

    _let_dynamo_see_random_ops()
    op = sweep.ops()[name]
    dtype = torch.float32
    try:
        reason = _attempt(op, dtype, backward=True)
        if reason is None:
            return Row(name, "eager", "no sample that the CPU can run")
        if not reason:
            return Row(name, "ok")
        eager = sweep.run_op(op, dtype, 1, sweep.widest(op, dtype))
        if eager.status not in ("native", "fallback"):
            return Row(name, "eager", f"{eager.status}: {eager.reason}")
        if sweep.differentiable(op, dtype) and not _attempt(op, dtype, backward=False):
            return Row(name, "forward", reason)
        return Row(name, "none", reason)
    finally:
        torch._dynamo.reset()


def _attempt(op: Any, dtype: Any, *, backward: bool) -> str | None:
    """Empty if the compiled op is right, else what is wrong; None if there is nothing to run."""
    import torch

    from tests.conformance.compare import UNWRITTEN, judge
    from tests.conformance.differences import COMPILED
    from tests.conformance.sweep import (
        Aspect,
        cases,
        forward,
        forward_and_backward,
        on_device,
        widest,
    )

    torch._dynamo.reset()
    aspect = widest(op, dtype) if backward else Aspect.FORWARD
    case = next(cases(op, dtype, 1, aspect), None)
    if case is None:
        return None
    compiled = torch.compile(_plain(op.op), backend="neuron", fullgraph=True)
    function = (forward_and_backward if backward else forward)(compiled, case.process)
    try:
        if case.random:
            # The values are those that the device draws without torch.compile.
            torch.manual_seed(_SEED)
            expected, after = on_device(case)
            exact = not UNWRITTEN.search(op.name)
            case = replace(case, expected=_on_cpu(expected), after=_on_cpu(after), random=not exact)
            torch.manual_seed(_SEED)
        actual, after = on_device(replace(case, function=function))
        return judge(case, actual, after, COMPILED)[:600]
    except Exception as error:
        return _describe(error)


@cache
def _let_dynamo_see_random_ops() -> None:
    """op_db's random ops set the seed around the op, which no graph can do."""
    import torch
    from torch.testing._internal.common_methods_invocations import wrapper_set_seed

    torch.compiler.substitute_in_graph(wrapper_set_seed)(_without_seed)


def _without_seed(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function around an op, which may be a builtin."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _on_cpu(value: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf, value)


def _describe(error: BaseException) -> str:
    """The error in one line, without the place in the test that called the op."""
    text = re.sub(r" \(at [^)]*\)", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text.partition(' Explanation:')[0][:300]}"


# ---- many ops, in workers


def work() -> None:
    """Answer names of ops with their rows."""
    from torchneuron.settings import settings

    warnings.simplefilter("ignore")
    settings.fallback = "allow"
    workers.serve(lambda name: asdict(run_op(name)))


def run_all(names: Sequence[str], timeout: float) -> Iterator[Row]:
    """A row for each op."""
    for name, answer in workers.run_all("tests.conformance.compiled", names, timeout):
        if isinstance(answer, workers.WorkerDied):
            yield Row(name, "none", str(answer))
        else:
            yield Row(**answer)


def all_names() -> list[str]:
    """The ops of op_db that take float32."""
    import torch

    from tests.conformance.sweep import ops

    return [name for name, op in ops().items() if torch.float32 in op.supported_dtypes("cpu")]


def _kept(names: Sequence[str], restart: bool) -> list[Row]:
    """Rows of an interrupted run over these ops, and of other ops."""
    if not RESULTS.exists():
        return []
    rows = [Row(**json.loads(line)) for line in RESULTS.read_text().splitlines()]
    if restart or {row.op for row in rows} >= set(names):
        return [row for row in rows if row.op not in names]
    return rows


def differences(rows: Sequence[Row], expected: dict[str, str]) -> list[str]:
    """A line for each row that is not what is expected, better or worse."""
    found = []
    for row in rows:
        wanted = expected.get(row.op, "not listed")
        if row.status != wanted.partition(":")[0]:
            found.append(f"{row.op}: {row.status} {row.reason}, expected: {wanted}")
    return found


def _updated(rows: Sequence[Row], expected: dict[str, str]) -> dict[str, str]:
    """``expected`` with these rows in it; the reasons of those that stay are kept."""
    result = dict(expected)
    for row in rows:
        if row.status != expected.get(row.op, "").partition(":")[0]:
            result[row.op] = f"{row.status}: {row.reason}" if row.reason else row.status
    return dict(sorted(result.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="", help="only ops whose name this regex matches")
    parser.add_argument("--restart", action="store_true", help="do not resume an interrupted run")
    parser.add_argument(
        "--update", action="store_true", help="write what is found to compiled.json"
    )
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one op")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work()
        return 0
    warnings.simplefilter("ignore")
    names = [name for name in all_names() if re.search(args.ops, name)]
    rows = _kept(names, args.restart)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    rows = [row for row in rows if row.op in names]
    done = {row.op for row in rows}
    with RESULTS.open("a") as file:
        for row in _with_progress([name for name in names if name not in done], args.timeout):
            rows.append(row)
            print(json.dumps(asdict(row)), file=file, flush=True)
    expected = read() if _EXPECTED.exists() else {}
    if args.update:
        _EXPECTED.write_text(json.dumps(_updated(rows, expected), indent=1) + "\n")
    return _report(rows, read())


def _with_progress(names: Sequence[str], timeout: float) -> Iterator[Row]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("op_db, compiled"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns) as progress:
        task = progress.add_task("", total=len(names))
        for row in run_all(names, timeout):
            if row.status != "ok":
                progress.console.print(f"{row.status:8} {row.op}: {row.reason}", markup=False)
            progress.update(task, advance=1, description=row.op)
            yield row


def _report(rows: Sequence[Row], expected: dict[str, str]) -> int:
    counts = Counter(row.status for row in rows)
    eager = len(rows) - counts["eager"]
    print(f"{len(rows)} ops, {eager} of them pass eagerly; compiled {dict(counts)}")
    if eager:
        print(f"compiled, forward and backward: {counts['ok'] / eager:.1%} of these")
    problems = differences(rows, expected)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
