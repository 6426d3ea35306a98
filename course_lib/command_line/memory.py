"""The `memory` command. It has its own module because it covers the training runs from several chapters."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib.command_line import options
from course_lib.gptsan import cli as gptsan
from course_lib.prefix import cli as prefix
from course_lib.pretrain import cli as pretrain
from course_lib.settings import config as configuration
from course_lib.settings import profiles
from course_lib.training.run_verb import RunKind

KINDS: tuple[RunKind[Any], ...] = (pretrain.RUN, gptsan.RUN, prefix.RUN)


def memory(
    config: options.RunConfig = None,
    overrides: options.Set = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs; default: launch.ranks")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Plan the GPU memory of a run for every ZeRO stage and recompute choice, and list the cards that it fits.

    The settings file is one of `course pretrain`, `course gptsan train` or `course prefix train`.
    """
    from course_lib.training import planner

    settings = settings_of(config, overrides)
    settings.batch.resolve(gpus or settings.launch.ranks or 1)
    print(json.dumps(planner.report(settings, gpus), indent=1) if as_json else planner.table(settings, gpus))


def settings_of(file: Path | None, overrides: list[str] | None) -> Any:
    """Return the settings for the kind of run that matches the most keys in the file.

    Without a file, return those for a pretraining run.
    """
    content = configuration.flat(profiles.read_yaml(profiles.find(file))) if file else {}

    def unknown(kind: RunKind[Any]) -> int:
        return len(content.keys() - {key for key, *_ in configuration.describe(kind.settings)})

    # On a tie, min returns the first kind.
    kind = min(KINDS, key=unknown)
    return kind.planned(*kind.read(file, overrides))
