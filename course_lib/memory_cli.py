"""The verb `memory`. It is a module of its own because it plans the runs of several chapters."""

import json
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
    """Plan the GPU memory of a run for every ZeRO stage and recompute choice, and list the cards that it fits.

    The settings file is one of `course pretrain`, `course gptsan train` or `course prefix train`.
    """
    from course_lib.training import planner

    settings = settings_of(config, overrides)
    settings.batch.resolve(gpus or settings.launch.ranks or 1)
    print(json.dumps(planner.report(settings, gpus), indent=1) if as_json else planner.table(settings, gpus))


def settings_of(file: Path | None, overrides: list[str] | None) -> Any:
    """The settings of a run. Its kind (pretrain, gptsan or prefix) follows from keys that only one kind has."""
    keys = _keys(file) if file else set()
    if file and keys & {"task_name", "model.base", "model.method", "model.length"}:
        from course_lib.prefix.config import PrefixConfig

        return configuration.load(PrefixConfig, file, overrides or ())
    if file and keys & {"spout", "loss", "model.checkpoint", "model.shape", "model.ignore"}:
        from course_lib.gptsan.config import GptsanConfig
        from course_lib.gptsan.products import planned

        settings = configuration.load(GptsanConfig, file, overrides or ())
        return settings if "model.shape" in keys else planned(settings)
    return run_settings(file, overrides)


def _keys(file: Path) -> set[str]:
    """The top-level keys of a settings file, and the keys of its `model` section as model.<key>.

    `file` is a path or the name of a bundled file.
    """
    candidates = (file, configuration.CONFIGS / file, configuration.CONFIGS / f"{file}.yaml")
    path = next((path for path in candidates if path.is_file()), None)
    content = configuration.read_yaml(path) if path else {}
    model = content.get("model")
    return content.keys() | {f"model.{key}" for key in (model if isinstance(model, dict) else ())}
