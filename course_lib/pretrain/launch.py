"""Starts a run with DeepSpeed's launcher. What it says is followed in follow.py, its folder is runfolder.py, the ranks are worker.py.

A run is a folder: config.yaml, deepspeed.json, data.json, tokenizer/, log.jsonl, output.txt (all that the ranks printed), checkpoints/,
tensorboard/ and, when it is through, model/.
"""

import os
import socket
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from course_lib.errors import UsageError
from course_lib.parallel import default_workers
from course_lib.pretrain import data, log, runfolder, worker
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.follow import Follower, Say
from course_lib.pretrain.rates import warmup_steps


@dataclass(frozen=True)
class Run:
    """What a run came to."""

    folder: Path
    steps: int
    log: list[dict[str, Any]]


def pretrain(settings: PretrainConfig, resume: bool = False, say: Say = print) -> Run:
    """Trains the model of the settings under DeepSpeed; returns when all steps are done.

    With `resume` it goes on from the last whole checkpoint of engine.output_dir. `say` is given each line of the log. Raises UsageError
    for settings that do not go together, CourseError for everything that ends a run before its last step.
    """
    settings = _absolute(settings)
    for tracker in settings.engine.tracking:
        if find_spec(tracker) is None:
            raise UsageError(f"engine.tracking: {tracker} is not installed; pip install {tracker}, or leave it out")
    ranks = count_ranks(settings)
    batch = settings.batch.resolve(ranks)
    data.check_vocabulary(settings)
    splits = data.open_splits(settings.data, settings.model.vocab_size)
    steps = data.training_steps(settings, batch, splits.train_tokens)
    warmup_steps(settings.optimizer.lr, steps)
    folder = settings.engine.output_dir
    with runfolder.sole_user(folder):
        runfolder.prepare(settings, batch, resume)
        if not (resume and runfolder.is_done(folder, steps)):
            Follower(settings, ranks, steps, say).follow(
                _command(settings, ranks, resume), _environment(settings, ranks)
            )
    return Run(folder, steps, log.read(folder))


def count_ranks(settings: PretrainConfig) -> int:
    """Data-parallel ranks over all nodes."""
    launch = settings.launch
    if launch.hostfile:
        return sum(_slots(launch.hostfile).values())
    gpus = _gpus(settings)
    if launch.ranks and gpus and launch.ranks > gpus:
        raise UsageError(
            f"launch.ranks: {launch.ranks} is not allowed: this machine has {gpus} GPU{'s' * (gpus > 1)}; launch.device=cpu takes CPU ranks"
        )
    return launch.ranks or max(gpus, 1)


def _gpus(settings: PretrainConfig) -> int:
    """GPUs of this machine that a run may take."""
    import torch

    return 0 if settings.launch.device == "cpu" else torch.cuda.device_count()


def _slots(hostfile: Path) -> dict[str, int]:
    """Ranks per node of a DeepSpeed hostfile. Raises UsageError naming a line that is none of `name slots=N`."""
    found = {}
    try:
        lines = hostfile.read_text(encoding="utf8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"launch.hostfile: {hostfile}: not readable: {error}") from None
    for number, text in enumerate(lines, 1):
        words = text.split("#")[0].split()
        if not words:
            continue
        name, _, count = words[-1].partition("=")
        if len(words) != 2 or name != "slots" or not count.isdigit() or not int(count):
            raise UsageError(
                f"launch.hostfile: {hostfile}, line {number}: {text!r} is not allowed: expected `name slots=8`"
            )
        found[words[0]] = int(count)
    if not found:
        raise UsageError(f"launch.hostfile: {hostfile}: names no node; expected lines `name slots=8`")
    return found


def _absolute(settings: PretrainConfig) -> PretrainConfig:
    """The same with absolute paths: ranks on other nodes start in another folder."""
    if not settings.data.input or settings.data.tokenizer is None:
        raise UsageError(
            "data.input, data.tokenizer: not set; give prefixes from `course tokenize` and the tokenizer they were made with"
        )
    return replace(
        settings,
        data=replace(
            settings.data,
            input=tuple(path.absolute() for path in settings.data.input),
            tokenizer=settings.data.tokenizer.absolute(),
            cache=settings.data.cache and settings.data.cache.absolute(),
        ),
        engine=replace(settings.engine, output_dir=settings.engine.output_dir.absolute()),
        launch=replace(settings.launch, hostfile=settings.launch.hostfile and settings.launch.hostfile.absolute()),
    )


def _command(settings: PretrainConfig, ranks: int, resume: bool) -> list[str]:
    """The launcher's command line."""
    launch = settings.launch
    command = [sys.executable, "-m", "deepspeed.launcher.runner", "--no_local_rank"]
    if launch.hostfile:
        command += ["--hostfile", str(launch.hostfile)]
    else:
        command += [
            "--hostfile",
            os.devnull,
            "--num_gpus",
            str(ranks),
        ]  # else it reads /job/hostfile where there is one
    if launch.master_addr:
        command += ["--master_addr", launch.master_addr]
    command += ["--master_port", str(launch.master_port or _free_port())]
    command += [worker.__file__, str(settings.engine.output_dir)]
    return [*command, "--resume"] if resume else command


def _devices(ranks: int) -> list[str]:
    """The first GPUs, or the first of those that CUDA_VISIBLE_DEVICES allows, which `--num_gpus` alone would pass over."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (
        ["--include", f"localhost:{','.join(visible[:ranks])}"] if len(visible) >= ranks else ["--num_gpus", str(ranks)]
    )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _environment(settings: PretrainConfig, ranks: int) -> dict[str, str]:
    """What the ranks see: CPU ranks where there is no GPU, and no more threads than cores."""
    environment = dict(os.environ)
    if not _gpus(settings):
        environment["DS_ACCELERATOR"] = "cpu"
        environment.setdefault(
            "MALLOC_MMAP_MAX_", "0"
        )  # glibc would return the logits' memory each step, and have it zeroed again
        environment.setdefault("MALLOC_TRIM_THRESHOLD_", str(1 << 40))
    here = 1 if settings.launch.hostfile else ranks
    threads = settings.launch.threads or max(1, default_workers() // here)
    environment["OMP_NUM_THREADS"] = str(threads)
    environment["TOKENIZERS_PARALLELISM"] = "false"
    beside = str(
        Path(sys.executable).parent
    )  # this environment's ninja first: another one would compile DeepSpeed's parts anew
    environment["PATH"] = os.pathsep.join([beside, environment.get("PATH", os.defpath)])
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[2]), environment.get("PYTHONPATH")])
    )
    return environment
