"""What the scoreboard runs: a task for each row of the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple
from zlib import crc32

import torch
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.hop_db import hop_db
from torch.testing._internal.opinfo.core import OpInfo

from tests.conformance.scoreboard import hops, modules, optimizers
from tests.conformance.sweep import Aspect, Row, aspects, foreach_ops, ops, run_error_inputs, run_op

DTYPES = (
    "float32",
    "bfloat16",
    "float16",
    "int64",
    "int32",
    "bool",
    "complex64",
    "float64",
)
# Of what has no dtype of its own.
NO_DTYPE = "-"


class Task(NamedTuple):
    """One row to be: what of which op."""

    database: str
    op: str
    dtype: str
    aspect: str


@dataclass(frozen=True)
class Result:
    """A row of the table; ``status`` is that of sweep.Row, ``mode`` how the device ran eagerly.

    ``run`` says of how many samples it speaks: "all", or the number that was asked for.
    """

    database: str
    op: str
    dtype: str
    aspect: str
    mode: str
    status: str
    samples: int
    reason: str = ""
    run: str = ""

    @property
    def task(self) -> Task:
        """What it is the result of."""
        return Task(self.database, self.op, self.dtype, self.aspect)


def _of_ops(database: str, found: dict[str, OpInfo]) -> Iterator[Task]:
    for dtype in DTYPES:
        of = getattr(torch, dtype)
        for name, op in found.items():
            if of in op.supported_dtypes("cpu"):
                for aspect in aspects(op, of):
                    yield Task(database, name, dtype, aspect)


def _all() -> Iterator[Task]:
    yield from _of_ops("op_db", ops())
    yield from _of_ops("foreach", foreach_ops())
    for name, op in ops().items():
        if op.error_inputs_func is not None:
            yield Task("op_db", name, NO_DTYPE, Aspect.ERRORS)
    for module in module_db:
        for aspect in (Aspect.FORWARD, Aspect.BACKWARD):
            yield Task("module_db", module.name, "float32", aspect)
    for optimizer in optim_db:
        for way in optimizers.ways(optimizer):
            yield Task("optim_db", optimizer.name, "float32", way)
    for hop in hop_db:
        yield Task("hop_db", hop.full_name, "float32", hops.ASPECT)


def _rank(task: Task) -> tuple[bool, int]:
    """Forwards of all dtypes and all of float32 come first: what most of the bars are set on.

    The others are shuffled, so that what an interrupted run has of them stands for all.
    """
    wide = task.aspect == Aspect.FORWARD or task.dtype in ("float32", NO_DTYPE)
    return not wide, 0 if wide else crc32(" ".join(task).encode())


def all_tasks(regex: str = "") -> list[Task]:
    """Every row of the table whose database, op, dtype and aspect match, in the order of running."""
    found = [task for task in _all() if re.search(regex, " ".join(task))]
    return sorted(found, key=_rank)


def run(task: Task, limit: int, mode: str) -> Result:
    """Run ``limit`` samples of a task, 0 for all, in this process."""
    try:
        row = _run(task, limit)
    except Exception as error:
        row = Row(
            task.op, "error", 0, f"no case can be made: {type(error).__name__}: {error!s:.200}"
        )
    reason = " ".join(row.reason.split())
    if row.status in ("wrong", "error"):
        reason = f"sample {row.samples}: {reason}"
    return Result(
        *task, mode, **{k: v for k, v in asdict(replace(row, reason=reason)).items() if k != "op"}
    )


def _run(task: Task, limit: int) -> Row:
    dtype = getattr(torch, task.dtype) if task.dtype != NO_DTYPE else torch.float32
    match task.database:
        case "module_db":
            return modules.run(task.op, dtype, limit, backward=task.aspect == Aspect.BACKWARD)
        case "optim_db":
            return optimizers.run(task.op, task.aspect, limit)
        case "hop_db":
            return hops.run(task.op)
    op = (ops() if task.database == "op_db" else foreach_ops())[task.op]
    if task.aspect == Aspect.ERRORS:
        return run_error_inputs(op)
    return run_op(op, dtype, limit, Aspect(task.aspect))
