"""Products that are built by a training run, which can continue: run folders are kept next to the products."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from course_lib import paths
from course_lib.settings import config, profiles
from course_lib.training import log
from course_lib.training.launch import train
from course_lib.training.run_dir import DEEPSPEED
from course_lib.training.settings import RunsConfig
from course_lib.training.task import Task


def fill(
    folder: Path,
    task: Task,
    run: str,
    export: Callable[[Path], dict[str, Any]],
    keep: tuple[str, ...] = (log.FILE, DEEPSPEED),
) -> dict[str, Any]:
    """Train a task or resume its run, and fill a product folder. Return the counts for the product.

    `run` is the folder of the run in the workspace; its name is that of the product's `run_name()`, so that another
    identity, other code or inputs give another run beside the earlier ones. `export` writes the trained model into
    `folder` and returns counts to add; `keep` names run files to copy.
    """
    engine = replace(task.settings.engine, output_dir=runs_folder(run))
    trained = train(type(task)(replace(task.settings, engine=engine)), resume=True, on_message=lambda _: None)
    counts = {"steps": trained.steps} | export(trained.folder)
    for name in keep:
        shutil.copy(trained.folder / name, folder / name)
    held_out = [round(entry["loss"], 4) for entry in trained.log if entry["kind"] == "eval"]
    return counts | ({"held-out loss": held_out[-1]} if held_out else {})


def runs_folder(name: str) -> Path:
    """Return a folder for the runs of the profile: in training.runs.folder if its parent exists, or the workspace."""
    kept = config.section("training.runs", RunsConfig).folder
    if kept and kept.parent.is_dir():
        return kept / profiles.name() / name
    return paths.root() / name
