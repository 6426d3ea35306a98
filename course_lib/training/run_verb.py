"""The verb that trains a model: `course pretrain`, `course gptsan train` and `course prefix train` are three of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import typer

from course_lib import config as configuration
from course_lib import options
from course_lib.training.settings import RunConfig

Settings = TypeVar("Settings", bound=RunConfig)


@dataclass(frozen=True)
class RunKind(Generic[Settings]):
    """What `course memory` and the verb of one kind of run need. Only `run` imports torch."""

    settings: type[Settings]
    of_profile: Callable[[str | None], str]  # name of a profile → settings file of its run
    complete: Callable[[Settings, Path], Settings]  # sets what the settings file leaves unset to products
    run: Callable[[Settings, bool], str]  # trains, or resumes if True, and exports the model; returns a line to print
    planned: Callable[[Settings, Path], Settings] = lambda settings, _file: settings  # `complete` for the planner

    def read(self, file: Path | None, overrides: list[str] | None) -> tuple[Settings, Path]:
        """The settings of -c FILE, of the profile that -c names, or of the current profile's run; and their file."""
        chosen = options.run_file(file, self.of_profile)
        return configuration.load(self.settings, chosen, overrides or ()), chosen

    def verb(self, help: str, output_help: str) -> Callable[..., None]:
        """The function of the verb. `help` is its help text, and `output_help` that of its option -o."""

        def train(
            config: options.RunConfig = None,
            overrides: options.Set = None,
            output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help=output_help)] = None,
            resume: Annotated[
                bool, typer.Option("--resume", help="continue from the last complete checkpoint")
            ] = False,
        ) -> None:
            # Settings are checked before torch is imported, which takes seconds.
            settings = self.complete(*self.read(config, overrides))
            if output:
                settings = replace(settings, engine=replace(settings.engine, output_dir=output))
            print(self.run(settings, resume))

        train.__doc__ = help
        return train
