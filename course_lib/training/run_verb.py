"""The training command, shared by `course pretrain`, `course gptsan train` and `course prefix train`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import typer

from course_lib.command_line import options
from course_lib.settings import config as configuration
from course_lib.training import sbatch
from course_lib.training.settings import RunConfig

Step = Annotated[
    int | None, typer.Option("--step", min=0, metavar="N", help="checkpoint to export; default: the latest one")
]
Settings = TypeVar("Settings", bound=RunConfig)


@dataclass(frozen=True)
class RunKind(Generic[Settings]):
    """The settings class of one kind of training run, and the functions that complete, start and plan such a run.

    The training command for this kind of run and `course memory` use it. Of these functions, only `run` imports torch.
    """

    settings: type[Settings]
    of_profile: Callable[[str | None], str]  # profile name → settings file for its run
    complete: Callable[[Settings, Path], Settings]  # replaces unset inputs with course products
    run: Callable[[Settings, bool], str]  # trains, or resumes if True, and exports the model; returns a line to print
    planned: Callable[[Settings, Path], Settings] = lambda settings, _file: settings  # `complete` for the planner

    def read(self, file: Path | None, overrides: list[str] | None) -> tuple[Settings, Path]:
        """Return the settings for a run and the path to its settings file.

        The file is the one that -c names, the one for the profile that -c names, or the one for the current profile.
        """
        chosen = options.run_file(file, self.of_profile)
        return configuration.load(self.settings, chosen, overrides or ()), chosen

    def verb(self, help: str, output_help: str) -> Callable[..., None]:
        """Return the function for the training command, given its help text and the help text for its -o option."""

        def train(
            context: typer.Context,
            config: options.RunConfig = None,
            overrides: options.Set = None,
            output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help=output_help)] = None,
            resume: Annotated[
                bool, typer.Option("--resume", help="continue from the last complete checkpoint")
            ] = False,
            node_rank: Annotated[
                int | None,
                typer.Option(
                    "--node-rank", metavar="N", help="number of this node, with launch.no_ssh; sets launch.node_rank"
                ),
            ] = None,
            print_sbatch: Annotated[
                bool, typer.Option("--print-sbatch", help="print a Slurm script for this run, and do not start it")
            ] = False,
        ) -> None:
            # Check the settings before importing torch, which takes seconds.
            if node_rank is not None:
                overrides = [*(overrides or ()), f"launch.node_rank={node_rank}"]
            if print_sbatch:
                settings, file = self.read(config, overrides)
                print(sbatch.script(settings.launch, context.command_path.split()[1:], file, overrides, output), end="")
                return
            settings = self.complete(*self.read(config, overrides))
            if output:
                settings = replace(settings, engine=replace(settings.engine, output_dir=output))
            print(self.run(settings, resume))

        train.__doc__ = help
        return train
