"""A worker for tests: it answers, dies, hangs or fails, as it is told."""

import os
import sys
import time
from typing import Any

from tests.conformance import workers


def obey(task: str) -> Any:
    match task:
        case "die":
            print("last words", file=sys.stderr, flush=True)
            os.abort()
        case "hang":
            time.sleep(600)
        case "print":
            print("what no one asked for")
    return os.getpid()


if __name__ == "__main__":
    workers.serve(obey)
