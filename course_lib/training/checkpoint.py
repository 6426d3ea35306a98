"""Finding, marking and removing the checkpoints of a run. The Trainer and DeepSpeed write the checkpoint files.

A checkpoint is complete if it has a valid `complete.json`, written last, which lists every other file with its size.
"""

import json
import shutil
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.files import atomic_write

COMPLETE = "complete.json"
FOLDER = "checkpoints"


def mark_complete(checkpoint: Path) -> None:
    """Mark a checkpoint as complete. Call this function after every rank has written its files."""
    files = {
        str(path.relative_to(checkpoint)): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.name != COMPLETE
    }
    with atomic_write(checkpoint / COMPLETE) as file:
        file.write(json.dumps({"files": files}, indent=1).encode())


def is_whole(checkpoint: Path) -> bool:
    """Return whether a checkpoint is complete: it is marked, and every listed file has its recorded size."""
    try:
        files = json.loads((checkpoint / COMPLETE).read_text(encoding="utf8"))["files"]
        return all((checkpoint / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


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
    prefix, _, number = checkpoint.name.partition("-")
    return int(number) if prefix == "checkpoint" and number.isdigit() else -1


def ranks_of(checkpoint: Path) -> int:
    """Return the number of ranks that saved a checkpoint. Each of them saved the states of its random generators."""
    return len(list(checkpoint.glob("rng_state*.pth")))


def whole_checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, latest first."""
    complete = [path for path in (run / FOLDER).glob("checkpoint-*") if step_of(path) >= 0 and is_whole(path)]
    return sorted(complete, key=step_of, reverse=True)


def prune(run: Path, keep: int | None) -> None:
    """Remove incomplete checkpoints, and all complete ones except the latest `keep`. None keeps all complete ones."""
    whole = whole_checkpoints(run)
    kept = whole if keep is None else whole[:keep]
    for path in (run / FOLDER).glob("checkpoint-*"):
        if path not in kept:
            # Remove the mark first, so that an interrupted removal leaves no checkpoint that looks complete.
            (path / COMPLETE).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
