"""The process of the DeepSpeed launcher: how it is started and stopped, and the signals that interrupt a run.

A run is interrupted by Ctrl-C, SIGTERM, SIGHUP (a closed terminal), SIGUSR1 (Slurm, before a time limit), or because
the reader of the output has closed its pipe, as `head` does.
"""

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from course_lib.training import stop_request

Launcher = subprocess.Popen[bytes]
# exit code → what happened, for the signals that raise SystemExit
SIGNALS = {
    128 + signal.SIGTERM: "terminated",
    128 + signal.SIGHUP: "hung up",
    128 + stop_request.SIGNAL: "stopped by SIGUSR1",
}


def start(command: list[str], environment: dict[str, str], folder: Path, output: int) -> Launcher:
    """Start the launcher in a session of its own. It and its ranks write to the file descriptor `output`."""
    # Slurm sends the stop request to every process of a step. The launcher would end at it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {stop_request.SIGNAL})
    try:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(process: Launcher, at_once: bool = False) -> None:
    """Stop the launcher and its ranks with SIGTERM, and after 20 seconds or `at_once` with SIGKILL.

    DeepSpeed's runner for ssh answers SIGTERM with a `pkill -f` on all nodes, which ends other runs too. If it is
    killed at once, its ranks end because the ssh connection closes their output.
    """
    numbers = (signal.SIGKILL,) if at_once else (signal.SIGTERM, signal.SIGKILL)
    for number in numbers:
        # Ranks that the launcher could not stop are still in its process group.
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(20)


class Elsewhere(SystemExit):
    """Exception for a run that was interrupted on another node; its second argument says how."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt inside the block, as Ctrl-C does, and SIGUSR1 SystemExit once.

    Signals that have a handler, as in cli.py, or are ignored, as under `nohup`, stay as they are.
    """
    # Python allows signal handlers only in the main thread.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    handlers = dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler) | {stop_request.SIGNAL: stop}
    numbers = [each for each in handlers if signal.getsignal(each) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def ignore_stop_request() -> None:
    """Ignore the stop request in this process from now on, because it is being carried out."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(stop_request.SIGNAL, signal.SIG_IGN)


def interruption(error: BaseException) -> tuple[str, int] | None:
    """Return what interrupted the run and the exit code for it, or None for an error."""
    if isinstance(error, Elsewhere):
        return error.args[1], error.args[0]
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 128 + signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return SIGNALS.get(error.code, "ended"), error.code
    # Nobody reads standard output any more; errors in files have a name.
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.EPIPE, errno.EIO):
        return "the reader of the output has ended, so the run stopped", 128 + signal.SIGPIPE
    return None
