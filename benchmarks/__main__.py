"""Run every benchmark, each in a process of its own: `python -m benchmarks [--out DIR] [options]`.

Options that are not `--out` go to the benchmarks as they are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

BENCHMARKS = ("eager", "warm_process", "compile", "lowering", "adaptive")


def main() -> int:
    """Run from the command line; the exit code is 1 when any benchmark ended with another than 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="DIR", help="write NAME.json files here")
    options, passed_on = parser.parse_known_args()
    failed = False
    for name in BENCHMARKS:
        print(f"== {name}", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), *passed_on]
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            command += ["--json", str(options.out / f"{name}.json")]
        failed |= subprocess.run(command, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
