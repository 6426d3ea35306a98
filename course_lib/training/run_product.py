"""Products that a training run makes. Runs are kept next to the products, so that an interrupted one can continue."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from course_lib import paths
from course_lib.settings import config, profiles
from course_lib.training import log
from course_lib.training.loop import train
from course_lib.training.run import Run
from course_lib.training.run_dir import DEEPSPEED
from course_lib.training.settings import RunsConfig


def fill(folder: Path, run: Run, runs: str, name: str) -> tuple[dict[str, Any], Any]:
    """Train a run or continue it, and export it as `name` into a product folder.

    `runs` is the folder of the run in the workspace. It ends with the product's `run_name()`, so that another identity,
    other code or other inputs give another run beside the earlier ones. Returns the counts for the product, and what
    the export reports.
    """
    engine = replace(run.settings.engine, output_dir=runs_folder(runs))
    run = type(run)(replace(run.settings, engine=engine))
    trained = train(run, resume=True, on_message=lambda _: None)
    report = run.export(folder / name)
    for file in (log.FILE, DEEPSPEED):
        shutil.copy(trained.folder / file, folder / file)
    counts: dict[str, Any] = {"steps": trained.steps}
    held_out = [round(entry["loss"], 4) for entry in trained.log if entry["kind"] == "eval"]
    if held_out:
        counts["held-out loss"] = held_out[-1]
    return counts, report


def runs_folder(name: str) -> Path:
    """Return a folder for the runs of the profile: in training.runs.folder if its parent exists, or the workspace."""
    kept = config.section("training.runs", RunsConfig).folder
    if kept and kept.parent.is_dir():
        return kept / profiles.name() / name
    return paths.root() / name
