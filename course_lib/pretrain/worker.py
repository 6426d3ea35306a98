"""One rank of a run, started by DeepSpeed's launcher: `worker.py RUN [--resume]`, with the settings in RUN/config.yaml.

Whatever ends a rank is told as an event, so that launch.py can say in one line what happened.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from course_lib import config
from course_lib.errors import CourseError
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.events import emit
from course_lib.pretrain.runfolder import CONFIG


def main(run: Path, resume: bool) -> None:
    """Trains, or goes on with, the run in a folder, and ends the process with 0 or 1."""
    if os.environ.get("DS_ACCELERATOR") == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the launcher numbers CPU ranks like GPUs
    rank = int(os.environ.get("RANK", "0"))
    _tell_termination(rank)
    emit("start", rank=rank, pid=os.getpid())
    try:
        _train(run, resume)
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


def _train(run: Path, resume: bool) -> None:
    import deepspeed
    import torch
    from transformers.utils import logging

    from course_lib.pretrain import checkpoint, leftovers
    from course_lib.pretrain.data import open_splits, special_ids, training_steps
    from course_lib.pretrain.model import build_model
    from course_lib.pretrain.trainer import PretrainTrainer, training_arguments

    logging.set_verbosity_error()
    settings = config.load(PretrainConfig, run / CONFIG)
    batch = settings.batch.resolve(int(os.environ.get("WORLD_SIZE", "1")))
    splits = open_splits(settings.data, settings.model.vocab_size)
    assert settings.data.tokenizer
    begin, end = special_ids(settings.data.tokenizer)
    steps = training_steps(settings, batch, splits.train_tokens)
    arguments = training_arguments(settings, batch, steps)  # first: stage 3 shards the model while it is built
    _ = arguments.device  # sets the device of this rank
    deepspeed.init_distributed()  # stage 3 has to know the ranks
    leftovers.unlink_shared_buffer()
    torch.manual_seed(settings.engine.seed)
    trainer = PretrainTrainer(settings, batch, arguments, build_model(settings.model, begin, end), splits, end)
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
    main(Path(sys.argv[1]), "--resume" in sys.argv[2:])
