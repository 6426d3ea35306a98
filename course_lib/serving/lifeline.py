"""Starts a program that ends when the process that started it ends, even by SIGKILL: `python lifeline.py PARENT PROGRAM ARGUMENT…`.

Run as a file: it stands between `subprocess.Popen` and the program, which takes its place and its process id.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that the kernel sends when the parent dies


def main(parent: int, program: list[str]) -> None:
    """Replaces this process by the program."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # else it died before the line above
        os.execv(program[0], program)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
