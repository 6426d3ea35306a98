"""What interrupts a run: Ctrl-C, SIGTERM, SIGHUP (a closed terminal), SIGUSR1 (Slurm), or a closed output pipe.

SIGUSR1 is also the stop request to a rank: to save a checkpoint after the current step and stop.
"""

import errno
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOP = signal.SIGUSR1
# exit code → what happened, for the signals that raise SystemExit
SIGNALS = {128 + signal.SIGTERM: "terminated", 128 + signal.SIGHUP: "hung up", 128 + STOP: "stopped by SIGUSR1"}
_received = threading.Event()


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt, and SIGUSR1 SystemExit, unless handled or ignored already."""

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    handlers = dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler) | {STOP: stop}
    # Python allows signal handlers only in the main thread.
    in_main = threading.current_thread() is threading.main_thread()
    numbers = [each for each in handlers if in_main and signal.getsignal(each) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def cause_of(error: BaseException) -> tuple[str, int] | None:
    """Return what interrupted the run and the exit code for it, or None for an error."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 128 + signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return SIGNALS.get(error.code, "ended"), error.code
    # Nobody reads standard output any more; errors in files have a name.
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.EPIPE, errno.EIO):
        return "the reader of the output has ended, so the run stopped", 128 + signal.SIGPIPE
    return None


def listen() -> None:
    """Record the stop request in this rank from now on, instead of ending the process."""
    signal.signal(STOP, lambda *_: _received.set())
    # Restart system calls that the signal interrupts, such as those of a collective operation.
    signal.siginterrupt(STOP, False)


def stop_agreed(device: object) -> bool:
    """Return whether any rank has received the request: all must save the same step. All call this after a step."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return _received.is_set()
    received = torch.tensor(float(_received.is_set()), device=str(device))
    dist.all_reduce(received)
    return bool(received)
