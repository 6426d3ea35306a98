"""The run folder: locking it, checking whether a run may continue in it, and writing the files that the ranks read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson
from filelock import FileLock, Timeout

from course_lib.checkpoints import tokenizer_settings
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, atomic_write, read_json, read_record, require_other
from course_lib.language.words import tr, tr_noop
from course_lib.settings import config
from course_lib.training import checkpoint, log
from course_lib.training.deepspeed_config import deepspeed_json
from course_lib.training.run import Run
from course_lib.training.settings import ResolvedBatch

if TYPE_CHECKING:
    # It imports torch, which takes seconds.
    from course_lib.training.ranks import Rank

# the settings, DeepSpeed's form of them, and the facts about the inputs in the run's identity
CONFIG, DEEPSPEED, DATA = "config.yaml", "deepspeed.json", "data.json"
# which setting names the input that a fact of an identity is about
SETTING_OF = {
    "inputs": "data.input", "checkpoint": "model.checkpoint", "frozen": "model.ignore", "base": "model.base",
    "split documents": "data.packing",
}  # fmt: skip
# the sample indices of GPT-2 in the run folder
INDEX_CACHE = "index-cache"
# what several ranks print
OUTPUT = "output.txt"
# the exported model in the run folder
MODEL = "model"
# the copy of the tokenizer in the run folder
TOKENIZER = "tokenizer"


@contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Lock the run folder for the duration of the block. Raises CourseError if another process is training in it.

    A folder that the block refuses by a UsageError does not keep a new lock: it may be somebody else's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / ".lock"
    is_new = not lock.exists()
    try:
        # A rank that has just been killed may hold the lock for a moment.
        with FileLock(lock, timeout=2):
            try:
                yield
            except UsageError:
                if is_new:
                    lock.unlink(missing_ok=True)
                raise
    except Timeout:
        message = tr_noop("{folder}: another process is training here; choose another engine.output_dir")
        raise CourseError(tr(message, folder=folder)) from None


def with_batch_of_run(run: Run, ranks: int, on_message: Callable[[str], None]) -> Run:
    """Return the run with the global batch of the run in its folder, if the settings name none."""
    settings = run.settings
    folder: Path = settings.engine.output_dir
    if settings.batch.global_size or not checkpoint.whole_checkpoints(folder):
        return run
    before = read_record(folder / DEEPSPEED, {"train_batch_size": int})["train_batch_size"]
    if settings.batch.resolve(ranks).total == before:
        return run
    batch = replace(settings.batch, global_size=before, local_size=None)
    local = batch.resolve(ranks).local
    on_message(tr("batch.global_size: {size}, as the run began; {local} for each rank", size=before, local=local))
    return type(run)(replace(settings, batch=batch))


def require_no_other_files(run: Run) -> None:
    """Raise UsageError if the run's folder has files, and they are not those of a run."""
    folder: Path = run.settings.engine.output_dir
    found = [path.name for path in folder.iterdir()] if folder.exists() else []
    # Ranks that fail at once leave only what they print, and samples may have been looked at before the training.
    others = [name for name in found if not name.startswith(".") and name not in (OUTPUT, INDEX_CACHE)]
    if others and not _is_run(run, folder):
        message = tr_noop("engine.output_dir: {folder} holds other files; allowed: a new folder, or a run to resume")
        raise UsageError(tr(message, folder=folder))


def require_usable(
    run: Run, batch: ResolvedBatch, resume: bool, identity: Callable[[], dict[str, Any]]
) -> tuple[int, list[str]]:
    """Return the step to continue from, 0 for a new run, and remarks. Nothing is written.

    Raises UsageError or CourseError if the run may not train in its folder. Its identity is computed only if need be.
    """
    require_no_other_files(run)
    settings = run.settings
    folder: Path = settings.engine.output_dir
    whole = checkpoint.whole_checkpoints(folder)
    if not whole:
        checkpoint.require_undamaged(folder)
        nothing = tr_noop("nothing to resume in {folder}: training from the start")
        return 0, [tr(nothing, folder=folder)] if resume else []
    if not resume:
        raise UsageError(
            tr("engine.output_dir: {folder} holds a run; --resume continues it, "
               "another engine.output_dir starts a new one", folder=folder)
        )  # fmt: skip
    earlier: Any = config.load(run.settings_class, folder / CONFIG)
    _require_same(run, earlier, batch, identity())
    _require_same_tokenizer(run)
    latest, remarks = whole[0], []
    for damaged in map(checkpoint.damage, checkpoint.newer_than(folder, checkpoint.step_of(latest))):
        if damaged:
            line = tr_noop("{problem}; the run continues from {checkpoint}")
            remarks.append(tr(line, problem=damaged, checkpoint=latest.name))
    ranks, saved_by = batch.total // batch.local, checkpoint.ranks_of(latest)
    if ranks != saved_by:
        line = tr_noop("{checkpoint}: number of ranks {before} → {ranks}; dropout masks and the order of sums differ")
        remarks.append(tr(line, checkpoint=latest.name, before=saved_by, ranks=ranks))
    if earlier.lengths() != settings.lengths():
        remarks.append(tr("the training length was changed: learning rate and sample order now follow the new one"))
    return checkpoint.step_of(latest), remarks


def prepare(run: Run, batch: ResolvedBatch, resume: bool, on_message: Callable[[str], None]) -> int:
    """Write the files that a run begins with, and return the step to continue from, which is 0 for a new run."""
    settings = run.settings
    folder: Path = settings.engine.output_dir
    identity = cache(run.identity)
    start_step, remarks = require_usable(run, batch, resume, identity)
    for remark in remarks:
        on_message(remark)
    facts = {key: value for key, value in identity().items() if key != "settings"}
    if start_step:
        log.keep_until(folder, start_step)
    else:
        # Discard the log of an earlier attempt that saved no checkpoint.
        (folder / log.FILE).unlink(missing_ok=True)
    contents: dict[str, Any] = {
        # By the first file, _is_run knows the folder.
        CONFIG: config.to_yaml(settings),
        DEEPSPEED: deepspeed_json(settings, batch),
        DATA: facts,
    }
    for name, content in contents.items():
        with atomic_write(folder / name) as file:
            is_yaml = name == CONFIG
            file.write(content.encode() if is_yaml else orjson.dumps(content, option=orjson.OPT_INDENT_2))
    checkpoint.begin_record(folder)
    if not start_step:
        with atomic_folder(folder / TOKENIZER, ours=True) as copy:
            run.copy_tokenizer(copy)
    return start_step


def _is_run(run: Run, folder: Path) -> bool:
    """Return whether a run wrote the settings in a folder, and not the user: they would be replaced."""
    path = folder / CONFIG
    if not path.is_file() or all((folder / name).is_file() for name in (DEEPSPEED, DATA)):
        return path.is_file()
    # A run that was killed at its start has only the settings, exactly as they are written.
    try:
        return config.to_yaml(config.load(run.settings_class, path)) == path.read_text(encoding="utf8")
    except UsageError:
        return False


@contextmanager
def export_folder(run: Path, target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `target` at the end; it may not be the run, but its `model` folder."""
    is_model_of_run = target.absolute() == run.absolute() / MODEL
    if not is_model_of_run:
        require_other(run, target)
    with atomic_folder(target, ours=is_model_of_run) as folder:
        yield folder


def _require_same_tokenizer(run: Run) -> None:
    """Raise UsageError if the tokenizer is not the one that the run's folder keeps a copy of."""
    folder: Path = run.settings.engine.output_dir
    with TemporaryDirectory() as name:
        run.copy_tokenizer(Path(name))
        file = tokenizer_settings.difference(Path(name), folder / TOKENIZER)
    if file:
        raise UsageError(
            f"tokenizer: its {file} is not that of the run in {folder}, which has a copy in {folder / TOKENIZER}; "
            "resume it with its own tokenizer, or start a new run in another engine.output_dir"
        )


def require_same_inputs(run: Run, rank: "Rank") -> None:
    """Raise CourseError if a node does not see the inputs that the first node sees."""
    wanted = rank.broadcast(run.identity() if rank.first else {})
    if rank.first_of_node and not rank.first:
        found = run.identity()
        for key in wanted:
            if found[key] != wanted[key]:
                raise CourseError(f"{key}: not the same content as on the first node; copy the files again")


def _require_same(run: Run, earlier: Any, batch: ResolvedBatch, identity: dict[str, Any]) -> None:
    """Raise UsageError if the `earlier` settings, the batch or the data in the folder are those of another run."""
    folder = run.settings.engine.output_dir
    before = config.flat(config.to_dict(earlier))
    before["batch.global_size"] = read_record(folder / DEEPSPEED, {"train_batch_size": int})["train_batch_size"]
    for key, value in (identity["settings"] | {"batch.global_size": batch.total}).items():
        if value != before[key]:
            raise UsageError(
                f"{key}: {value} is not allowed: the run in {folder} has {before[key]}; "
                "resume it with its own settings, or start a new run in another engine.output_dir"
            )
    data = read_json(folder / DATA)
    # as they are written there
    facts = orjson.loads(orjson.dumps(identity))
    for key in facts.keys() - {"settings"}:
        if data.get(key) != facts[key]:
            raise UsageError(
                f"{SETTING_OF.get(key, key)}: not what the run in {folder} was trained with; resume it with its own "
                "inputs, or start a new run in another engine.output_dir"
            )
