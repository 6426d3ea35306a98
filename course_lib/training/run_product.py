"""Products that a training run makes. Runs stay next to the products, so that an interrupted one can continue."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from course_lib import paths
from course_lib.settings import profiles
from course_lib.training import log
from course_lib.training.loop import Trained
from course_lib.training.run import Run
from course_lib.training.run_dir import DEEPSPEED
from course_lib.training.settings import RUNS_SECTION

RunKind = TypeVar("RunKind", bound=Run)


def in_workspace(run: RunKind, name: str) -> RunKind:
    """Return a run whose folder is in the workspace, where it stays.

    The name ends with the product's `run_name()`: another identity, other code or other inputs give another run.
    """
    engine = replace(run.settings.engine, output_dir=runs_folder(name))
    return type(run)(replace(run.settings, engine=engine))


def counts(trained: Trained, folder: Path) -> dict[str, Any]:
    """Return the counts of a run for its product, and copy its log and DeepSpeed's settings into the folder."""
    for file in (log.FILE, DEEPSPEED):
        shutil.copy(trained.folder / file, folder / file)
    found: dict[str, Any] = {"steps": trained.steps}
    held_out = [round(entry["loss"], 4) for entry in trained.log if entry["kind"] == "eval"]
    if held_out:
        found["held-out loss"] = held_out[-1]
    return found


def runs_folder(name: str) -> Path:
    """Return a folder for the runs of the profile: in training.runs.folder if its parent exists, or the workspace."""
    folder = RUNS_SECTION.read().folder
    if folder and folder.parent.is_dir():
        return folder / profiles.current_name() / name
    return paths.root() / name
