"""The folder of a run: who may use it, what is written before training starts, and whether a run may go on in it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout

from course_lib import config
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, atomic_write
from course_lib.pretrain import checkpoint, data, log
from course_lib.pretrain.config import PretrainConfig, ResolvedBatch
from course_lib.pretrain.zero import deepspeed_json

CONFIG, DEEPSPEED, DATA = "config.yaml", "deepspeed.json", "data.json"


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


def prepare(settings: PretrainConfig, batch: ResolvedBatch, resume: bool, say: Callable[[str], None]) -> int:
    """Writes what the ranks read; returns the step from which training goes on, 0 for a run from the start.

    A run that has saved nothing yet may begin anew with other settings. Raises UsageError for a folder with other files, a run with
    checkpoints that is not to be resumed, and settings or tokens that would go on with it as another run.
    """
    folder = settings.engine.output_dir
    if not (folder / CONFIG).exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise UsageError(f"engine.output_dir: {folder} holds other files; allowed: a new folder, or a run to resume")
    whole = checkpoint.whole_checkpoints(folder)
    begun = checkpoint.step_of(whole[0]) if whole else 0
    facts = {"inputs": data.facts(settings.data.input)}
    if whole and not resume:
        raise UsageError(
            f"engine.output_dir: {folder} holds a run; --resume goes on with it, another engine.output_dir begins anew"
        )
    if whole:
        _require_same(settings, batch, facts)
        if _length(config.load(PretrainConfig, folder / CONFIG)) != _length(settings):
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
        assert settings.data.tokenizer
        with atomic_folder(folder / "tokenizer", ours=True) as copy:
            for path in settings.data.tokenizer.iterdir():
                if path.is_file() and path.name != "manifest.json":
                    shutil.copy(path, copy)
    return begun


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)


def _length(settings: PretrainConfig) -> tuple[object, ...]:
    return settings.engine.max_steps, settings.engine.num_train_epochs, settings.data.train_tokens


def _require_same(now: PretrainConfig, batch: ResolvedBatch, facts: dict[str, Any]) -> None:
    """Raises UsageError if a run would go on with another model, optimizer, batch, number of ranks, or other tokens."""
    folder = now.engine.output_dir
    old, new = _fixed(config.load(PretrainConfig, folder / CONFIG)), _fixed(now)
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
    if orjson.loads((folder / DATA).read_bytes()) != facts:
        raise UsageError(
            f"data.input: not the tokens the run in {folder} was trained on; resume it with those, or begin anew in another engine.output_dir"
        )


def _fixed(settings: PretrainConfig) -> dict[str, Any]:
    """What a resumed run may not change, by dotted key."""
    values = config.to_dict(settings)
    keys = [("model", key) for key in values["model"] if key not in ("recompute", "attention")]
    keys += [("optimizer", key) for key in values["optimizer"] if key != "fused"]
    keys += [("data", "split"), ("data", "seq_length"), ("data", "mask_loss_at_eod")]
    keys += [("precision", "dtype"), ("zero", "stage"), ("engine", "seed")]
    return {f"{part}.{key}": values[part][key] for part, key in keys}
