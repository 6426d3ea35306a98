"""How tests wait for other processes: until something is so, with no time limit that a busy machine could reach."""

import subprocess
import time
from collections.abc import Callable

# Seconds; below pytest's own limit, which names a test that hangs. No test expects that anything takes as long.
LIMIT = 800


def until(
    condition: Callable[[], object], process: "subprocess.Popen[str] | subprocess.Popen[bytes] | None" = None
) -> None:
    """Returns once the condition is true; fails if `process` ends first."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert process is None or process.poll() is None, (
            f"the process ended first, with exit code {process.returncode}"
        )
        assert time.monotonic() < end, f"nothing happened in {LIMIT} s"
        time.sleep(0.005)
