"""Products that are made by a training run.

The folder of a run is kept beside the products. So an interrupted run can continue, and no checkpoint is lost when a
setting is changed.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from course_lib.training import log
from course_lib.training.launch import train
from course_lib.training.run_dir import DEEPSPEED
from course_lib.training.task import Task


def fill(
    folder: Path,
    task: Task,
    runs: Path,
    export: Callable[[Path], dict[str, Any]],
    keep: tuple[str, ...] = (log.FILE, DEEPSPEED),
) -> dict[str, Any]:
    """Trains a task, or resumes its run, and fills a product's folder; returns the product's counts.

    Args:
        folder: the product's folder.
        task: what is trained.
        runs: holds the folders of runs. A change of the settings or of an input's content makes another run.
        export: writes the trained model from the run's folder into `folder`; returns counts to add.
        keep: names of the files of the run that are copied into the product.
    """
    engine = replace(task.settings.engine, output_dir=runs / _digest(task))
    run = train(type(task)(replace(task.settings, engine=engine)), resume=True, say=lambda _: None)
    counts = {"steps": run.steps} | export(run.folder)
    for name in keep:
        shutil.copy(run.folder / name, folder / name)
    held_out = [round(entry["loss"], 4) for entry in run.log if entry["kind"] == "eval"]
    return counts | ({"held-out loss": held_out[-1]} if held_out else {})


def _digest(task: Task) -> str:
    """A hash of the settings and input files of a run."""
    digest = sha256(repr(task.settings.content()).encode())
    for path in task.files():
        with open(path, "rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]
