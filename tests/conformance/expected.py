"""What the slice of op_db in expected.json is expected to do, and how to write it anew.

    python -m tests.conformance.expected

Runs the ops that expected.json lists; the reasons of fallbacks that stay are kept.
"""

import json
import sys
import warnings
from pathlib import Path

import torch

Expected = dict[str, dict[str, dict[str, str]]]

# Dtypes of which the gradients are compared as well.
BACKWARD = frozenset({"float32"})
_FILE = Path(__file__).with_name("expected.json")


def read() -> Expected:
    """dtype -> family -> op -> "native" or "fallback: reason"."""
    content: Expected = json.loads(_FILE.read_text())
    return content


def _now(name: str, dtype: str, before: str) -> str:
    from tests.conformance.sweep import ops, run_op

    row = run_op(ops()[name], getattr(torch, dtype), 1, backward=dtype in BACKWARD)
    if row.status not in ("native", "fallback"):
        raise ValueError(f"{name} of {dtype}: {row.status}: {row.reason}")
    if row.status == before.partition(":")[0]:
        return before
    print(f"{dtype} {name}: {row.status} {row.reason}", flush=True)
    return "native" if row.status == "native" else f"fallback: {_reasons(row.reason)}"


def _reasons(names: str) -> str:
    """The reasons that the backend gives for these ops."""
    events = torch.neuron.metrics()["fallback_events"]
    found = {event["op"]: event["reason"] for event in events if event["op"] in names.split(", ")}
    return "; ".join(f"{op}: {reason}" for op, reason in sorted(found.items()))


def main() -> int:
    from torchneuron.settings import settings

    settings.fallback = "allow"
    warnings.simplefilter("ignore")
    content = {
        dtype: {
            family: {name: _now(name, dtype, before) for name, before in listed.items()}
            for family, listed in families.items()
        }
        for dtype, families in read().items()
    }
    _FILE.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
