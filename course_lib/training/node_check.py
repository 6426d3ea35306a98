"""Checks that the nodes of a run fit together: versions and clocks, the run folder, the data, and the GPUs.

Each rank sends a record of its node with its first event, and the monitor compares the records with its own. A rank of
another node then compares the run folder and the data that it sees with those of the first node.
"""

import os
import platform
import time
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from course_lib.errors import CourseError
from course_lib.training import checkpoint, run_dir
from course_lib.training.task import CONFIG, Task

PACKAGES = ("torch", "deepspeed", "transformers", "accelerate", "numpy")
# largest difference between the clocks of two nodes [s]
SKEW = 5.0
# time after which a node sees what another node has written, for NFS with its default acdirmax, and some more [s]
VISIBLE = 90.0


class NodeError(CourseError):
    """Error for a node that does not fit the others. The message gets the node's name in front."""


def record() -> dict[str, Any]:
    """Return the versions on this machine, and its time [s since 1970]."""
    return {"versions": _versions(), "time": time.time()}


@cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "missing"
    digest = sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return versions | {"course_lib": f"code {digest.hexdigest()[:12]}"}


def compare(own: dict[str, Any], other: dict[str, Any], name: str, between: tuple[float, float]) -> None:
    """Raise CourseError if a node has other versions than this one, or a clock that is wrong by more than SKEW.

    Args:
        own: the record of this machine.
        other: the record of the node.
        name: the name of the node.
        between: a time of this machine before the other record was made, and one after [s since 1970].
    """
    for package, wanted in own["versions"].items():
        if (found := other["versions"].get(package, "missing")) != wanted:
            raise CourseError(
                f"{name}: {package} {found}, but {wanted} on the node that started the run; "
                "install the same versions on all nodes"
            )
    early, late = between[0] - other["time"], other["time"] - between[1]
    if max(early, late) > SKEW:
        raise CourseError(
            f"{name}: its clock is {max(early, late):.0f} s {('behind' if early > late else 'ahead')}; "
            f"allowed: {SKEW:g} s; synchronize the clocks (chrony, ntpd)"
        )


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
            return f"{CONFIG} and the files beside it are not those of the first node"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    saved = checkpoint.at(run, start_step)
    return f"{saved.name} is not complete" if start_step and not checkpoint.is_whole(saved) else ""


def same_inputs(task: Task, run: Path) -> None:
    """Raise NodeError if the inputs of the run that this node sees are not those of the first node."""
    wanted = orjson.loads((run / run_dir.DATA).read_bytes())
    try:
        found = orjson.loads(orjson.dumps(task.fingerprint()))
    except OSError as error:
        raise NodeError(f"{error.filename}: {error.strerror}; the data must be at the same path on all nodes") from None
    except CourseError as error:
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
