"""Which checkpoints of a run are whole. The content of a checkpoint is the Trainer's and DeepSpeed's affair.

A checkpoint counts once `complete.json` stands in it, which is written last and lists every file with its size.
"""

import json
import shutil
from pathlib import Path

from course_lib.files import atomic_write

COMPLETE = "complete.json"
FOLDER = "checkpoints"


def mark_complete(checkpoint: Path) -> None:
    """Declares a checkpoint whole. Call it when every rank has written its part."""
    files = {
        str(path.relative_to(checkpoint)): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.name != COMPLETE
    }
    with atomic_write(checkpoint / COMPLETE) as file:
        file.write(json.dumps({"files": files}, indent=1).encode())


def is_whole(checkpoint: Path) -> bool:
    """Whether every file is there with its size."""
    try:
        files = json.loads((checkpoint / COMPLETE).read_text(encoding="utf8"))["files"]
        return all((checkpoint / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def step_of(checkpoint: Path) -> int:
    """The step in a folder's name, `checkpoint-200`; -1 for another name."""
    prefix, _, number = checkpoint.name.partition("-")
    return int(number) if prefix == "checkpoint" and number.isdigit() else -1


def whole_checkpoints(run: Path) -> list[Path]:
    """The whole checkpoints of a run, latest first."""
    found = [path for path in (run / FOLDER).glob("checkpoint-*") if step_of(path) >= 0 and is_whole(path)]
    return sorted(found, key=step_of, reverse=True)


def prune(run: Path, keep: int | None) -> None:
    """Removes what is older than the `keep` latest whole checkpoints, and what killed runs left half-written."""
    whole = whole_checkpoints(run)
    kept = whole if keep is None else whole[:keep]
    for path in (run / FOLDER).glob("checkpoint-*"):
        if path not in kept:
            (path / COMPLETE).unlink(missing_ok=True)  # a removal that is interrupted leaves nothing that looks whole
            shutil.rmtree(path, ignore_errors=True)
