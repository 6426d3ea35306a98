"""The folder of a run: who may use it, what is written before training starts, and whether a run may go on in it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from filelock import FileLock, Timeout

from course_lib import config
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write
from course_lib.pretrain import checkpoint, data
from course_lib.pretrain.config import PretrainConfig, ResolvedBatch
from course_lib.pretrain.zero import deepspeed_json

CONFIG = "config.yaml"


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


def prepare(settings: PretrainConfig, batch: ResolvedBatch, resume: bool) -> None:
    """Writes the run's settings, or checks that they fit the run that is there. Raises UsageError."""
    folder = settings.engine.output_dir
    before = folder / CONFIG
    if before.exists() and not resume:
        raise UsageError(
            f"engine.output_dir: {folder} holds a run; --resume goes on with it, another engine.output_dir begins anew"
        )
    if not before.exists() and any(path.name != ".lock" for path in folder.iterdir()):
        raise UsageError(f"engine.output_dir: {folder} holds other files; allowed: a new folder, or a run to resume")
    if before.exists():
        _require_same(config.load(PretrainConfig, before), settings)
    assert settings.data.tokenizer
    for name, content in {
        "deepspeed.json": deepspeed_json(settings, batch),
        "data.json": {"inputs": data.facts(settings.data.input)},
    }.items():
        with atomic_write(folder / name) as file:
            file.write(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    if not (folder / "tokenizer").exists():
        shutil.copytree(settings.data.tokenizer, folder / "tokenizer", ignore=shutil.ignore_patterns("manifest.json"))
    with atomic_write(before) as file:  # last: with it the folder is a run
        file.write(config.to_yaml(settings).encode())


def _require_same(before: PretrainConfig, now: PretrainConfig) -> None:
    """Raises UsageError if a run would go on as another one: with another model, other batches, or other samples."""
    old, new = config.to_dict(before), config.to_dict(now)
    fixed = [
        ("model", key) for key in new["model"] if key not in ("recompute", "attention")
    ] + [("data", "split"), ("data", "seq_length"), ("batch", "global_size"), ("batch", "local_size"), ("batch", "micro_size"),
         ("precision", "dtype"), ("zero", "stage"), ("engine", "seed"), ("launch", "ranks")]  # fmt: skip
    for part, key in fixed:
        if old[part][key] != new[part][key]:
            raise UsageError(
                f"{part}.{key}: {new[part][key]} is not allowed: the run in {before.engine.output_dir} has {old[part][key]}; "
                "resume it as it was, or begin anew in another engine.output_dir"
            )


def is_done(folder: Path, steps: int) -> bool:
    """Whether the run has a whole checkpoint of its last step."""
    return any(checkpoint.step_of(path) >= steps for path in checkpoint.whole_checkpoints(folder))
