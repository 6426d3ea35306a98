"""The folder of a run: who may use it, what is written before training starts, and whether a run may go on in it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout

from course_lib import config
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, atomic_write
from course_lib.training import checkpoint, log
from course_lib.training.deepspeed_config import deepspeed_json
from course_lib.training.settings import ResolvedBatch
from course_lib.training.task import CONFIG, Task

DEEPSPEED, DATA = "deepspeed.json", "data.json"


@contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Holds the run's folder; raises CourseError if another process trains in it."""
    if folder.is_file():
        raise UsageError(f"engine.output_dir: {folder} is a file; allowed: a folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise CourseError(f"{folder}: another process is training here; choose another engine.output_dir") from None


def prepare(task: Task, batch: ResolvedBatch, resume: bool, say: Callable[[str], None]) -> int:
    """Writes what the ranks read; returns the step from which training goes on, 0 for a run from the start.

    A run that has saved nothing yet may begin anew with other settings. Raises UsageError for a folder with other
    files, a run with checkpoints that is not to be resumed, and settings or data that would go on with it as another
    run.
    """
    settings = task.settings
    folder: Path = settings.engine.output_dir
    if not (folder / CONFIG).exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise UsageError(f"engine.output_dir: {folder} holds other files; allowed: a new folder, or a run to resume")
    whole = checkpoint.whole_checkpoints(folder)
    begun = checkpoint.step_of(whole[0]) if whole else 0
    facts = task.fingerprint()
    if whole and not resume:
        raise UsageError(
            f"engine.output_dir: {folder} holds a run; --resume goes on with it, another engine.output_dir begins anew"
        )
    if whole:
        earlier: Any = config.load(task.settings_class, folder / CONFIG)
        _require_same(task, earlier, batch, facts)
        if task.train_length(earlier) != task.train_length(settings):
            say(
                "the length of training was changed: learning rate and order of samples follow the new one from here on"
            )
    else:
        (folder / log.FILE).unlink(missing_ok=True)  # of an attempt that saved nothing
        if resume:
            say(f"nothing to resume in {folder}: training from the start")
    _write(folder / CONFIG, config.to_yaml(settings).encode())  # first: with it the folder is known as a run
    _write(folder / DEEPSPEED, orjson.dumps(deepspeed_json(settings, batch), option=orjson.OPT_INDENT_2))
    _write(folder / DATA, orjson.dumps(facts, option=orjson.OPT_INDENT_2))
    if not whole:
        with atomic_folder(folder / "tokenizer", ours=True) as copy:
            task.copy_tokenizer(copy)
    return begun


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)


def _require_same(task: Task, earlier: Any, batch: ResolvedBatch, facts: dict[str, Any]) -> None:
    """Raises UsageError if a run would go on with another model, optimizer, batch, number of ranks, or other data."""
    folder = task.settings.engine.output_dir
    old, new = config.flat(task.resume_invariants(earlier)), config.flat(task.resume_invariants(task.settings))
    sizes = orjson.loads((folder / DEEPSPEED).read_bytes())
    micro = sizes["train_micro_batch_size_per_gpu"] * sizes["gradient_accumulation_steps"]
    old |= {"batch.global_size": sizes["train_batch_size"], "launch.ranks": sizes["train_batch_size"] // micro}
    new |= {"batch.global_size": batch.total, "launch.ranks": batch.total // batch.local}
    for key, value in new.items():
        if value != old[key]:
            raise UsageError(
                f"{key}: {value} is not allowed: the run in {folder} has {old[key]}; "
                "resume it as it was, or begin anew in another engine.output_dir"
            )
    before = orjson.loads((folder / DATA).read_bytes())
    names = {"inputs": "data.input", "checkpoint": "model.checkpoint", "frozen": "model.ignore", "base": "model.base"}
    for key, name in names.items():
        if before.get(key) != facts.get(key):
            raise UsageError(
                f"{name}: not what the run in {folder} was trained with; resume it with that, or begin anew in another engine.output_dir"
            )
