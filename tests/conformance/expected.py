"""What the slice of the scoreboard in expected.json is expected to do, and how to write it anew.

    python -m tests.conformance.expected

Runs the rows that expected.json lists; the reasons of those that stay as they are are kept.
"""

import json
import sys
import warnings
from pathlib import Path

from tests.conformance.scoreboard.tasks import Result, Task, run

# "database aspect dtype" -> op -> status, and after a colon the reason.
Expected = dict[str, dict[str, str]]

_FILE = Path(__file__).with_name("expected.json")


def read() -> Expected:
    """The slice, by database, aspect and dtype."""
    content: Expected = json.loads(_FILE.read_text())
    return content


def run_row(group: str, op: str) -> Result:
    """What the first sample of a row comes to now."""
    database, rest = group.split(" ", 1)
    aspect, dtype = rest.rsplit(" ", 1)
    return run(Task(database, op, dtype, aspect), 1, "strict")


def _now(group: str, op: str, before: str) -> str:
    row = run_row(group, op)
    if row.status == before.partition(":")[0]:
        return before
    print(f"{group} {op}: {row.status} {row.reason}", flush=True)
    return f"{row.status}: {row.reason}" if row.reason else row.status


def main() -> int:
    from torchneuron.settings import settings

    settings.fallback = "allow"
    warnings.simplefilter("ignore")
    content = {
        group: {op: _now(group, op, before) for op, before in sorted(listed.items())}
        for group, listed in sorted(read().items())
    }
    _FILE.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
