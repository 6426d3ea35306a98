"""Commands for distributed corpus work: `course scale run`, `status` and `plan`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from course_lib.command_line import options
from course_lib.scale.config import Engine, ScaleConfig

Folder = Annotated[
    str | None, typer.Option("-o", "--output", metavar="DIR", help="folder of the run; takes precedence over output")
]


def run(
    config: options.Config = None,
    overrides: options.Set = None,
    executor: Annotated[Engine, typer.Option("--executor", help="engine that runs the tasks")] = "local",
    output: Folder = None,
) -> None:
    """Turn dumps and web text into clean documents, a tokenizer and tokens, on one machine or a cluster."""
    from course_lib.scale.run import run as run_stages

    print(run_stages(_settings(config, overrides, output), executor))


def status(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="folder of the run, local or s3://")],
) -> None:
    """Show the stages of a run: tasks, rates, failures with their reasons, and the time left."""
    from course_lib.scale.status import status as state
    from course_lib.scale.status import table

    print(table(state(folder)))


def plan(config: options.Config = None, overrides: options.Set = None) -> None:
    """Estimate hours, memory and disk space of a run for 1 to 512 cores, from rates measured on one machine."""
    from course_lib.scale.plan import table

    print(table(_settings(config, overrides, None)))


def _settings(config: Path | None, overrides: list[str] | None, output: str | None) -> ScaleConfig:
    settings = options.given(ScaleConfig, config, overrides)
    chosen = output or settings.output
    # A relative path would mean another folder for a task on another machine.
    return replace(settings, output=chosen if not chosen or "://" in chosen else str(Path(chosen).absolute()))
