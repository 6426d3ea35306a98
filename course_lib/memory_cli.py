"""The verb `memory`, which plans the runs of more than one chapter."""

import json
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib import config as configuration
from course_lib import options
from course_lib.pretrain.cli import Json, run_settings


def register(app: typer.Typer) -> None:
    """Adds the verb to the `course` command."""
    app.command("memory")(memory)


def memory(
    config: options.Config = None,
    overrides: options.Set = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs; default: launch.ranks")] = None,
    as_json: Json = False,
) -> None:
    """Plan the memory of a run per GPU, for every ZeRO stage and recompute choice, and say which cards it fits.

    The file is one of `course pretrain` or of `course gptsan train`.
    """
    from course_lib.pretrain import planner

    settings = settings_of(config, overrides)
    settings.batch.resolve(gpus or settings.launch.ranks or 1)
    print(json.dumps(planner.report(settings, gpus), indent=1) if as_json else planner.table(settings, gpus))


def settings_of(file: Path | None, overrides: list[str] | None) -> Any:
    """The settings of a run, GPTSAN's where the file has a key that only these have; the planner knows them afterwards."""
    if file is None or not _is_gptsan(file):
        return run_settings(file, overrides)
    from course_lib.gptsan.config import GptsanConfig

    import_module("course_lib.gptsan.memory")  # tells the planner what a GPTSAN is made of
    return configuration.load(GptsanConfig, file, overrides or ())


def _is_gptsan(file: Path) -> bool:
    """Whether a settings file, given as a path or by the name of a bundled one, is of GPTSAN."""
    places = (file, configuration.CONFIGS / file, configuration.CONFIGS / f"{file}.yaml")
    found = next((path for path in places if path.is_file()), None)
    content = configuration.read_yaml(found) if found else {}
    model = content.get("model")
    return not content.keys().isdisjoint({"spout", "loss"}) or (
        isinstance(model, dict) and not model.keys().isdisjoint({"checkpoint", "shape", "ignore"})
    )
