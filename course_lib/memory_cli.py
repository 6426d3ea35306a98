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
    config: options.RunConfig = None,
    overrides: options.Set = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs; default: launch.ranks")] = None,
    as_json: Json = False,
) -> None:
    """Plan the memory of a run per GPU, for every ZeRO stage and recompute choice, and say which cards it fits.

    The file is one of `course pretrain`, `course gptsan train` or `course prefix train`.
    """
    from course_lib.training import planner

    settings = settings_of(config, overrides)
    settings.batch.resolve(gpus or settings.launch.ranks or 1)
    print(json.dumps(planner.report(settings, gpus), indent=1) if as_json else planner.table(settings, gpus))


def settings_of(file: Path | None, overrides: list[str] | None) -> Any:
    """The settings of a run: of the chapter that alone has a key of the file. The planner knows its model afterwards."""
    keys = _keys(file) if file else set()
    if file and keys & {"task_name", "model.base", "model.method", "model.length"}:
        from course_lib.prefix.config import PrefixConfig

        import_module("course_lib.prefix.memory")  # tells the planner what a prefix and its base are made of
        return configuration.load(PrefixConfig, file, overrides or ())
    if file and keys & {"spout", "loss", "model.checkpoint", "model.shape", "model.ignore"}:
        from course_lib.gptsan.config import GptsanConfig

        import_module("course_lib.gptsan.memory")
        from course_lib.gptsan.products import planned

        settings = configuration.load(GptsanConfig, file, overrides or ())
        return settings if "model.shape" in keys else planned(settings)
    return run_settings(file, overrides)


def _keys(file: Path) -> set[str]:
    """The keys of a settings file, given as a path or by the name of a bundled one, and those of its model as model.…"""
    places = (file, configuration.CONFIGS / file, configuration.CONFIGS / f"{file}.yaml")
    found = next((path for path in places if path.is_file()), None)
    content = configuration.read_yaml(found) if found else {}
    model = content.get("model")
    return content.keys() | {f"model.{key}" for key in (model if isinstance(model, dict) else ())}
