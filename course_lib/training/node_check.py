"""Checks by a rank of another node: the run folder, the data and the GPUs that it sees are those of the run."""

import os
import time
from pathlib import Path

import orjson

from course_lib.errors import CourseError
from course_lib.training import checkpoint, run_dir
from course_lib.training.task import Task

# time after which a node sees what another node has written, for NFS with its default acdirmax, and some more [s]
VISIBLE = 90.0


class NodeError(CourseError):
    """Error for a node that does not fit the others. The message gets the node's name in front."""


def wait_for_folder(run: Path, digest: str, start_step: int) -> None:
    """Return once this node sees the run folder as the launcher left it: the files and the checkpoint to start from.

    Raises NodeError if it does not within VISIBLE seconds.
    """
    end = time.monotonic() + VISIBLE
    while problem := _unseen(run, digest, start_step):
        # A file system that is not shared shows nothing of the folder, or an older run in it.
        if time.monotonic() > end or not run.is_dir():
            raise NodeError(
                f"{run}: {problem}; engine.output_dir must be on a file system that all nodes share, at the same path"
            )
        time.sleep(0.5)


def _unseen(run: Path, digest: str, start_step: int) -> str:
    try:
        if run_dir.digest(run) != digest:
            return "its files are not those of the first node"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    saved = checkpoint.at(run, start_step)
    return f"{saved.name} is not complete" if start_step and not checkpoint.is_whole(saved) else ""


def same_inputs(task: Task, run: Path) -> None:
    """Raise NodeError if the inputs of the run that this node sees are not those of the first node."""
    wanted = orjson.loads((run / run_dir.DATA).read_bytes())
    try:
        found = orjson.loads(orjson.dumps(task.fingerprint()))
    except (OSError, CourseError) as error:
        raise NodeError(f"{error}; the data must be at the same path on all nodes") from None
    for key, value in wanted.items():
        if found.get(key) != value:
            shown = ", ".join(map(str, value)) if isinstance(value, dict) else value
            raise NodeError(f"{key} ({shown}): not the same content as on the first node; copy the files again")


def enough_gpus() -> None:
    """Raise NodeError if this node has fewer GPUs than ranks."""
    import torch

    present, wanted = torch.cuda.device_count(), int(os.environ.get("LOCAL_SIZE", "1"))
    if os.environ.get("DS_ACCELERATOR") != "cpu" and present < wanted:
        raise NodeError(f"{present} GPUs for {wanted} ranks; correct its slots, or set launch.device=cpu for CPU ranks")
