"""A start of a program that ends with the process that started it, even after SIGKILL.

Usage: `python lifeline.py PARENT PROGRAM ARGUMENT…`. `subprocess.Popen` starts this file, which then replaces itself
by the program. The program keeps the process id.
"""

import ctypes
import os
import signal
import sys

# Option of prctl(2) that sets the signal that the kernel sends when the parent dies
PR_SET_PDEATHSIG = 1


def main(parent: int, program: list[str]) -> None:
    """Replace this process by `program`, which gets SIGTERM when the process `parent` ends.

    Returns without starting the program if `parent` has already ended.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Otherwise the parent died before prctl was called
    if os.getppid() == parent:
        os.execv(program[0], program)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
