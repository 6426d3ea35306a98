"""Products that a training run makes. Runs are kept next to the products, so that an interrupted one can continue."""

import json
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from course_lib import paths
from course_lib.settings import config, profiles
from course_lib.training import log, nodes
from course_lib.training.loop import train
from course_lib.training.run import Run
from course_lib.training.run_dir import DEEPSPEED
from course_lib.training.settings import RunsConfig


def fill(folder: Path, run: Run, runs: str, name: str) -> dict[str, Any]:
    """Train a run or continue it, export it as `name` into a product folder, and return the product's counts.

    A run with another identity, length or batch is another one beside the earlier ones, in `runs_folder(runs)`.
    """
    batch = run.settings.batch.resolve(nodes.find(run.settings).ranks)
    facts = run.identity() | {"length": run.settings.lengths(), "batch": batch.total}
    digest = sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    engine = replace(run.settings.engine, output_dir=runs_folder(runs) / digest[:12])
    run = type(run)(replace(run.settings, engine=engine))
    trained = train(run, resume=True, on_message=lambda _: None)
    assert trained
    counts = {"steps": trained.steps} | run.product_counts(run.export(folder / name))
    for file in (log.FILE, DEEPSPEED):
        shutil.copy(trained.folder / file, folder / file)
    held_out = [round(entry["loss"], 4) for entry in trained.log if entry["kind"] == "eval"]
    return counts | ({"held-out loss": held_out[-1]} if held_out else {})


def runs_folder(name: str) -> Path:
    """Return a folder for the runs of the profile: in training.runs.folder if its parent exists, or the workspace."""
    kept = config.section("training.runs", RunsConfig).folder
    if kept and kept.parent.is_dir():
        return kept / profiles.name() / name
    return paths.root() / name
