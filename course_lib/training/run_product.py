"""Products that are made by a training run.

The folder of a run is kept beside the products. So an interrupted run can continue, and no checkpoint is lost when a
setting is changed.
"""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, TypeVar

from course_lib import config
from course_lib.training import log
from course_lib.training.launch import Run
from course_lib.training.run_dir import DEEPSPEED
from course_lib.training.settings import RunConfig

Settings = TypeVar("Settings", bound=RunConfig)
# settings that do not affect what a run learns
PLACES = ("launch", "engine.output_dir")


def content(settings: RunConfig, places: Iterable[str]) -> dict[str, Any]:
    """The settings that affect what a run learns, as plain values.

    These are all settings except those in PLACES and the dotted keys in `places`, which name files and folders.
    """
    values = config.to_dict(settings)
    for key in (*PLACES, *places):
        *sections, last = key.split(".")
        inner = values
        for section in sections:
            inner = inner[section]
        del inner[last]
    return values


def run_folder(runs: Path, values: dict[str, Any], files: Iterable[Path]) -> Path:
    """The folder of the run with these settings and input files: a folder in `runs`, named by a hash.

    A change of the settings or of a file's content gives another folder.
    """
    digest = sha256(repr(values).encode())
    for path in files:
        with open(path, "rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    return runs / digest.hexdigest()[:12]


def fill(
    folder: Path,
    settings: Settings,
    run_dir: Path,
    train: Callable[[Settings, bool, Callable[[str], None]], Run],
    export: Callable[[Path], dict[str, Any]],
    keep: tuple[str, ...] = (log.FILE, DEEPSPEED),
) -> dict[str, Any]:
    """Trains in `run_dir`, or resumes the run there, and fills a product's folder; returns the product's counts.

    Args:
        folder: the product's folder.
        settings: those of the run.
        run_dir: the run's folder.
        train: starts or resumes a run; called as train(settings, resume, say).
        export: writes the trained model from the run's folder into `folder`; returns counts to add.
        keep: names of the files of the run that are copied into the product.
    """
    settings = replace(settings, engine=replace(settings.engine, output_dir=run_dir))
    run = train(settings, True, lambda _: None)
    counts = {"steps": run.steps} | export(run.folder)
    for name in keep:
        shutil.copy(run.folder / name, folder / name)
    held_out = [round(entry["loss"], 4) for entry in run.log if entry["kind"] == "eval"]
    return counts | ({"held-out loss": held_out[-1]} if held_out else {})
