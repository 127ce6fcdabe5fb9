"""Turn the demo's figures into the table of the README.

    python examples/readme_figures.py                           # run the demo, print the table
    python examples/readme_figures.py --json demo.json          # from an earlier demo's figures
    python examples/readme_figures.py --write README.md         # and put it between the markers

The table stands between two marker lines, which `--write` looks for.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BEGIN = "<!-- figures:begin -->"
END = "<!-- figures:end -->"


def markdown(outcome: dict[str, Any]) -> str:
    """Return the table, with its markers, for a demo's outcome."""
    lines = [
        BEGIN,
        "| job | result | time | programs compiled | cache hits, memory / disk "
        "| native executions | fallbacks |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    lines += [markdown_row(job) for job in outcome["jobs"]]
    lines += [
        "",
        f"Device `{outcome['device']}`, torch {outcome['torch']}, Python {outcome['python']}.",
        END,
    ]
    return "\n".join(lines)


def markdown_row(job: dict[str, Any]) -> str:
    """Return one job's line."""
    counters = job["counters"]
    counts = ["-", "-", "-", "-"]
    if counters is not None:
        fallbacks = ", ".join(f"{op} {n}" for op, n in sorted(counters["fallbacks"].items()))
        counts = [
            f"{counters['programs_compiled']:,}",
            f"{counters['cache_hits_memory']:,} / {counters['cache_hits_disk']:,}",
            f"{counters['executions']:,}",
            fallbacks or "none",
        ]
    mark = "" if job["passed"] else "**missed:** "
    result = mark + " ".join(job["result"].split()).replace("|", "\\|")
    cells = [f"({job['job']}) {job['title']}", result, f"{job['seconds']:.1f} s", *counts]
    return "| " + " | ".join(cells) + " |"


def replace_between_markers(text: str, table: str) -> str:
    """Return `text` with its marked part replaced; raises ValueError where a marker is missing."""
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        raise ValueError(f"the file needs the two marker lines:\n{BEGIN}\n{END}")
    return text[:begin] + table + text[end + len(END) :]


def run_demo(device: str) -> dict[str, Any]:
    """Run the demo in a process of its own and return its outcome."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "demo.json"
        demo = Path(__file__).with_name("demo.py")
        command = [sys.executable, str(demo), "--device", device, "--json", str(figures)]
        # The demo's own display goes to stderr: only the table belongs on stdout.
        finished = subprocess.run(command, stdout=sys.stderr, check=False)
        if not figures.is_file():
            raise SystemExit(
                f"the demo ended with exit code {finished.returncode}, without figures"
            )
        outcome: dict[str, Any] = json.loads(figures.read_text())
        return outcome


def main() -> int:
    """Run from the command line; the exit code is 1 when a job had missed its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--json", type=Path, metavar="FILE", help="figures of `demo.py --json`")
    parser.add_argument("--write", type=Path, metavar="README", help="update this file in place")
    options = parser.parse_args()
    outcome = json.loads(options.json.read_text()) if options.json else run_demo(options.device)
    table = markdown(outcome)
    if options.write is None:
        print(table)
    else:
        text = options.write.read_text()
        options.write.write_text(replace_between_markers(text, table))
    return 0 if outcome["passed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
