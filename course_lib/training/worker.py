"""One rank of a run, started by DeepSpeed's launcher: `worker.py TASK RUN [--resume]`; TASK is a class of task.py, its settings are in RUN.

Whatever ends a rank is told as an event, so that launch.py can say in one line what happened.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.training.events import emit
from course_lib.training.task import Task


def main(task: str, run: Path, resume: bool) -> None:
    """Trains, or goes on with, the run in a folder, and ends the process with 0 or 1."""
    if os.environ.get("DS_ACCELERATOR") == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the launcher numbers CPU ranks like GPUs
    rank = int(os.environ.get("RANK", "0"))
    _tell_termination(rank)
    emit("start", rank=rank, pid=os.getpid())
    try:
        _train(task, run, resume)
        emit("finished", rank=rank)
        code = 0
    except BrokenPipeError:  # whoever started the run is gone
        code = 1
    except BaseException as error:  # whatever it is has to be told before this rank disappears
        traceback.print_exc()
        emit("error", rank=rank, why=_why(error), message=_message(error))
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a rank with an error must not wait for the others in some clean-up


def _train(task: str, run: Path, resume: bool) -> None:
    from transformers.utils import logging

    from course_lib.training import checkpoint

    logging.set_verbosity_error()
    module, _, name = task.partition(":")
    begun: Task = getattr(import_module(module), name).read(run)
    trainer = begun.trainer(begun.settings.batch.resolve(int(os.environ.get("WORLD_SIZE", "1"))))
    latest = checkpoint.whole_checkpoints(run)[:1] if resume else []
    trainer.run_to_end(latest[0] if latest else None)


def _why(error: BaseException) -> str:
    """What kind of end it was: `user` (one clear line), `memory`, `lost` (another rank went away), or `crash`."""
    text = f"{type(error).__name__} {error}"
    if isinstance(error, CourseError):
        return "user"
    if isinstance(error, MemoryError) or any(
        mark in text for mark in ("OutOfMemory", "out of memory", "can't allocate memory", "ALLOC_FAILED")
    ):
        return "memory"
    if any(
        mark in text
        for mark in ("Connection closed by peer", "Connection reset", "NCCL", "Gloo", "DistBackend", "Broken pipe")
    ):
        return "lost"
    return "crash"


def _message(error: BaseException) -> str:
    first = " ".join(str(error).split())[:400]
    return first if isinstance(error, CourseError) else f"{type(error).__name__}: {first}"


def _tell_termination(rank: int) -> None:
    """When the launcher ends this rank because of another one, say so: a rank that says nothing is the one that died.

    A thread waits for the signal, since the main one may be deep in a collective operation that never ends.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def wait() -> None:
        while os.read(reader, 1)[0] != signal.SIGTERM:
            pass
        with contextlib.suppress(OSError):
            emit("terminated", rank=rank)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), "--resume" in sys.argv[3:])
