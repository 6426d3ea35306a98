"""Launcher for an executable that must stop when its parent process exits, even if the parent is killed with SIGKILL.

Usage: `python lifeline.py PARENT PROGRAM ARGUMENT…`. The process replaces itself with the executable.
"""

import ctypes
import os
import signal
import sys

# prctl(2) option that sets the signal the kernel sends when the parent dies
PR_SET_PDEATHSIG = 1


def main(parent: int, program: list[str]) -> None:
    """Replace this process with `program`, which receives SIGTERM when the parent exits, unless it has already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Otherwise, the parent died before prctl was called
    if os.getppid() == parent:
        os.execv(program[0], program)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
