"""Finding, marking and removing the checkpoints of a run. The Trainer and DeepSpeed write the checkpoint files.

A checkpoint is complete if it has a valid `complete.json`, written last, which lists every other file with its size.
One without complete.json is what a killed run leaves. One that lacks a listed file was damaged after it was saved.
checkpoints.json in the run folder lists the steps that the run has begun to save: it removes only these checkpoints.
"""

import json
import re
import shutil
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, read_record

COMPLETE = "complete.json"
# What checkpoints/state_files.py, which needs torch, calls FILE.
STATE = "state.json"
FOLDER = "checkpoints"
RECORD = "checkpoints.json"
NAME = re.compile("checkpoint-(0|[1-9][0-9]*)", re.ASCII)


def mark_complete(checkpoint: Path) -> None:
    """Mark a checkpoint as complete. Call this function after every rank has written its files."""
    files = {
        str(path.relative_to(checkpoint)): path.stat().st_size
        for path in _files_in(checkpoint)
        if path.name != COMPLETE
    }
    with atomic_write(checkpoint / COMPLETE) as file:
        file.write(json.dumps({"files": files}, indent=1).encode())


def is_whole(checkpoint: Path) -> bool:
    """Return whether a checkpoint is complete: it is marked, and every listed file has its recorded size."""
    return (checkpoint / COMPLETE).is_file() and damage(checkpoint) is None


def damage(checkpoint: Path) -> str | None:
    """Return what is wrong with a marked checkpoint, beginning with the file; None if it is whole or not marked."""
    marker = checkpoint / COMPLETE
    if not marker.exists():
        return None
    files = _listed(checkpoint)
    if files is None:
        return f"{marker}: is not readable"
    for name, size in files.items():
        path = checkpoint / name
        found = path.stat().st_size if path.is_file() else None
        if found is None:
            return f"{path}: is missing"
        if found != size:
            return f"{path}: has {found} bytes instead of {size}"
    return None


def _listed(checkpoint: Path) -> dict[str, int] | None:
    """Return the files that complete.json lists, with their sizes [bytes]; None if it is missing or not readable."""
    try:
        return dict[str, int](json.loads((checkpoint / COMPLETE).read_text(encoding="utf8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def require_undamaged(run: Path) -> None:
    """Raise CourseError, which names a file, if no checkpoint of a run is whole and one was damaged after its save.

    A training from the start would remove it.
    """
    problems = [damage(path) for path in checkpoints_of(run)]
    if problem := next(filter(None, problems), None):
        raise CourseError(
            f"{problem}; no checkpoint of the run is whole: restore the file, or start a new run in another "
            "engine.output_dir"
        )


def begin_record(run: Path) -> None:
    """Begin the list of the steps that a run saves; of a run by an earlier version, with those that are whole."""
    if not (run / RECORD).is_file():
        _write_record(run, {step_of(path) for path in checkpoints_of(run) if is_whole(path)})


def record(run: Path, step: int) -> None:
    """Note that the run is about to save a checkpoint of a step."""
    _write_record(run, (_recorded(run) or set()) | {step})


def _write_record(run: Path, steps: set[int]) -> None:
    with atomic_write(run / RECORD) as file:
        file.write(json.dumps({"steps": sorted(steps)}).encode() + b"\n")


def _recorded(run: Path) -> set[int] | None:
    """Return the steps that a run has begun to save; None for a run by an earlier version, which has no such list."""
    if not (run / RECORD).is_file():
        return None
    steps = read_json(run / RECORD).get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, int) for step in steps):
        raise CourseError(f"{run / RECORD}: steps: expected a list of whole numbers, found {str(steps)[:40]}")
    return set(steps)


def checkpoints_of(run: Path) -> list[Path]:
    """Return the checkpoints that a run wrote, whole or not, latest first."""
    steps = _recorded(run)
    found = [path for path in (run / FOLDER).glob("checkpoint-*") if path.is_dir() and step_of(path) >= 0]
    return sorted((path for path in found if steps is None or step_of(path) in steps), key=step_of, reverse=True)


def to_export(run: Path, step: int | None = None) -> Path:
    """Return the checkpoint of a step, or the latest one. An older one is not a substitute for one that is damaged."""
    whole = whole_checkpoints(run)
    if not whole:
        raise CourseError(f"{run}: the run has no whole checkpoint yet")
    wanted = max((run / FOLDER).glob("checkpoint-*"), key=step_of) if step is None else at(run, step)
    if wanted not in whole:
        others = ", ".join(f"--step {step_of(path)}" for path in whole)
        raise CourseError(f"{wanted}: damaged, incomplete or missing; {others} exports a complete checkpoint")
    return wanted


def at(run: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return run / FOLDER / f"checkpoint-{step}"


def step_of(checkpoint: Path) -> int:
    """Return the step in a folder name: 200 for `checkpoint-200`, -1 if the name does not match this pattern."""
    name = NAME.fullmatch(checkpoint.name)
    return int(name[1]) if name else -1


def ranks_of(checkpoint: Path) -> int:
    """Return the number of ranks that saved a checkpoint."""
    if (checkpoint / STATE).is_file():
        return int(read_record(checkpoint / STATE, {"ranks": int})["ranks"])
    # In an earlier version, each rank saved the states of its random generators under such a name.
    return len(list(checkpoint.glob("rng_state*.pth")))


def whole_checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, latest first."""
    return list(filter(is_whole, checkpoints_of(run)))


def newer_than(run: Path, step: int) -> list[Path]:
    """Return the checkpoints of a run after a step, latest first."""
    return [path for path in checkpoints_of(run) if step_of(path) > step]


def prune(run: Path, keep: int | None) -> None:
    """Remove incomplete checkpoints, and all complete ones except the latest `keep`. None keeps all complete ones.

    What the run did not write stays: `checkpoint-best`, a copy that the user made, or a file in a checkpoint, such as
    what DeepSpeed's zero_to_fp32.py puts there.
    """
    whole = whole_checkpoints(run)
    latest = whole if keep is None else whole[:keep]
    for path in checkpoints_of(run):
        if path not in latest:
            _remove(run, path)


def _remove(run: Path, checkpoint: Path) -> None:
    """Remove a checkpoint. If it holds files that the run did not write, they stay, and the folder is the user's."""
    listed = _listed(checkpoint)
    others = {str(path.relative_to(checkpoint)) for path in _files_in(checkpoint)} - {*(listed or ()), COMPLETE}
    # complete.json goes first, so that an interrupted removal leaves no checkpoint that looks complete.
    if listed is None or not others:
        (checkpoint / COMPLETE).unlink(missing_ok=True)
        shutil.rmtree(checkpoint, ignore_errors=True)
        return
    begin_record(run)
    _write_record(run, (_recorded(run) or set()) - {step_of(checkpoint)})
    for name in (COMPLETE, *listed):
        (checkpoint / name).unlink(missing_ok=True)


def _files_in(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file())
