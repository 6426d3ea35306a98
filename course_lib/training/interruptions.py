"""What stops a run: Ctrl-C, SIGTERM, SIGHUP (a closed terminal), SIGUSR1 (Slurm), or output that nobody reads any more.

A request to stop is only noted. The process that trains looks for it after each step, saves a checkpoint and stops. The
process that starts several ranks passes it on to all of them.
"""

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.training import checkpoint

STOP = signal.SIGUSR1
# exit code → what happened
CAUSES = {
    128 + signal.SIGINT: "interrupted",
    128 + signal.SIGTERM: "terminated",
    128 + signal.SIGHUP: "hung up",
    128 + STOP: "stopped by SIGUSR1",
    128 + signal.SIGPIPE: "the reader of the output has ended, so the run stopped",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, STOP)
# Environment variable of the ranks that starter.py starts: requests come by their standard input, an exit code a line.
STARTED = "COURSE_STARTED"


@dataclass
class StopRequest:
    """Whether and why the run is to stop."""

    # the exit code for the cause, 0 without a request
    exit_code: int = 0

    @property
    def cause(self) -> str | None:
        """What asked for the stop, in a few words, or None."""
        return CAUSES.get(self.exit_code)

    def note(self, exit_code: int) -> None:
        """Note a request. The first one counts."""
        self.exit_code = self.exit_code or exit_code

    @contextmanager
    def noting_closed_output(self) -> Iterator[None]:
        """Note a request if what the block prints has no reader any more: a closed pipe or terminal."""
        try:
            yield
        except OSError as error:
            # Errors in files have a name.
            if error.filename is not None or error.errno not in (errno.EPIPE, errno.EIO):
                raise
            self.note(128 + signal.SIGPIPE)

    def error(self, step: int, steps: int | None, folder: Path, *more: str) -> CourseError:
        """Return the error that ends a run which stops as requested, after `step` of its `steps` steps, if known."""
        where = at_step(step, steps) if step else "before the first step"
        stopped = CourseError("; ".join((f"{self.cause} {where}", how_to_go_on(folder), *more)))
        stopped.exit_code = self.exit_code
        return stopped


# what starter.py asks of this rank
_of_starter = StopRequest()


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Note signals in the block instead of ending the process. Ctrl-C after a first request raises KeyboardInterrupt.

    Signals that the process ignores, as under nohup, stay ignored.
    """
    request = _of_starter if STARTED in os.environ else StopRequest()

    def note(number: int, _frame: object) -> None:
        if number == signal.SIGINT and request.cause:
            raise KeyboardInterrupt
        request.note(128 + number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    # Python allows signal handlers only in the main thread.
    in_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in SIGNALS if in_main and before[number] not in (signal.SIG_IGN, None)]
    for number in numbers:
        signal.signal(number, note)
        # Restart system calls that the signal interrupts, such as those of a collective operation.
        signal.siginterrupt(number, False)
    try:
        yield request
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def follow_starter() -> None:
    """In a rank of starter.py, begin to note what it asks, and exit when it has ended or closes its end of the pipe.

    A thread reads, because the main thread may be in a collective operation that never ends.
    """

    def read() -> None:
        received = b""
        # sys.stdin would hold a lock that Python needs at exit.
        while data := os.read(0, 100):
            received += data
            if b"\n" in received:
                _of_starter.note(int(received.split(b"\n")[0]))
        os._exit(1)

    if STARTED in os.environ:
        threading.Thread(target=read, daemon=True).start()


def at_step(step: int, steps: int | None) -> str:
    """Return how far a run is; the number of its steps is None if its time decides."""
    return f"at step {step} of {steps}" if steps else f"at step {step}"


def how_to_go_on(folder: Path) -> str:
    """Return from which checkpoint a run in a folder can go on, as a part of an error message."""
    whole = checkpoint.whole_checkpoints(folder)
    return f"--resume continues from {whole[0].name}" if whole else "no checkpoint was saved yet"
