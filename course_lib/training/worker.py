"""The script for one rank, started by the DeepSpeed launcher: `worker.py TASK RUN START STEPS`.

TASK names a subclass of `Task` (`module:class`), RUN is the run folder, START the step to continue from, 0 for a new
run, and STEPS the last one. Unless a rank is killed, it reports how it ended as an event.
"""

import contextlib
import gc
import os
import select
import signal
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path

import orjson

from course_lib.errors import CourseError
from course_lib.language.words import mark
from course_lib.training import checkpoint, extensions, interruptions, run_dir
from course_lib.training.events import emit
from course_lib.training.task import Task

# words in the error of a rank that has no memory, and of one whose peer has exited
MEMORY = ("OutOfMemory", "out of memory", "can't allocate memory", "ALLOC_FAILED")
LOST = ("Connection closed by peer", "Connection reset", "NCCL", "Gloo", "DistBackend", "Broken pipe")


def main(task: str, run: Path, start: int, steps: int) -> None:
    """Train or resume the run in a folder, and exit with code 0 or 1."""
    os.environ |= extensions.build_environment()
    if os.environ.get("DS_ACCELERATOR") == "cpu":
        # The launcher sets this variable to the CPU rank numbers, as if they were GPUs.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    rank = int(os.environ.get("RANK", "0"))
    _tell_termination(rank)
    _end_with_reader()
    interruptions.listen()
    emit("start", rank=rank, pid=os.getpid())
    try:
        emit("finished", rank=rank, stopped=_train(task, run, start, steps))
        code = 0
    # The process that started the run has exited.
    except BrokenPipeError:
        code = 1
    # Any error must be reported before this rank exits.
    except BaseException as error:
        traceback.print_exc()
        message = " ".join(str(error).split())[:400]
        kind = "" if isinstance(error, CourseError) else f"{type(error).__name__}: "
        emit("error", rank=rank, why=_why(error), message=kind + message)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit at once: after an error, cleanup code could wait for the other ranks forever.
    os._exit(code)


def _train(task: str, run: Path, start: int, steps: int) -> bool:
    """Train to the last step; return True if the rank was asked to stop before it."""
    # Imported modules are never freed, so garbage collection during the imports would only take time.
    gc.disable()
    _stage(mark("loading PyTorch, transformers and DeepSpeed"))
    from transformers.utils import logging

    from course_lib.training.trainer import RunTrainer

    logging.set_verbosity_error()
    module, _, name = task.partition(":")
    loaded: Task = getattr(import_module(module), name).read(run)
    # DeepSpeed's launcher numbers the nodes and their ranks.
    if os.environ.get("CROSS_RANK", "0") != "0" and os.environ.get("LOCAL_RANK") == "0":
        require_same_inputs(loaded, run)
    _stage(mark("building model and optimizer"))
    batch = loaded.settings.batch.resolve(int(os.environ.get("WORLD_SIZE", "1")))
    trainer = RunTrainer(loaded, batch, steps)
    gc.freeze()
    gc.enable()
    trainer.run_to_end(checkpoint.at(run, start) if start else None)
    return trainer.stopped


def require_same_inputs(task: Task, run: Path) -> None:
    """Raise CourseError if the inputs of the run that this node sees are not those of the first node."""
    found, wanted = orjson.loads(orjson.dumps(task.fingerprint())), orjson.loads((run / run_dir.DATA).read_bytes())
    if different := [key for key, value in wanted.items() if found.get(key) != value]:
        raise CourseError(f"{different[0]}: not the same content as on the first node; copy the files again")


def _stage(what: str) -> None:
    """Report what this process group does before the first step; rank 0 speaks for all."""
    if os.environ.get("RANK", "0") == "0":
        emit("stage", what=what)


def _why(error: BaseException) -> str:
    """Classify an error: `user` (clear message), `memory`, `lost` (another rank) or `crash`."""
    text = f"{type(error).__name__} {error}"
    if isinstance(error, CourseError):
        return "user"
    if isinstance(error, MemoryError) or any(words in text for words in MEMORY):
        return "memory"
    return "lost" if any(words in text for words in LOST) else "crash"


def _tell_termination(rank: int) -> None:
    """Make SIGTERM, which the launcher sends to all ranks when one of them fails, report an event and then exit."""
    # A thread waits, because the main thread may be in a collective operation that never ends.
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


def _end_with_reader() -> None:
    """Exit when the process that reads the output of this rank has exited, even if this rank prints nothing."""
    poll = select.poll()
    # Errors are always reported, and nothing else is asked for.
    poll.register(1, 0)

    def wait() -> None:
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll()):
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
