"""Runs of every kind: the kind that a settings file names, the memory plan, and the export of what was trained."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Argument, Option

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.command_line import train
from course_lib.command_line.options import Config, MayHold, Output, Overrides, path
from course_lib.command_line.output import Shown
from course_lib.errors import UsageError
from course_lib.gptsan.config import GPTSanRunConfig
from course_lib.prefix.config import PrefixConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config as configuration
from course_lib.settings import profiles
from course_lib.training.run_dir import CONFIG, MODEL
from course_lib.training.settings import RunConfig

if TYPE_CHECKING:
    from course_lib.training.run import Run


class Kind(NamedTuple):
    """A kind of run: the class of its settings, and a function that imports that of its runs."""

    settings: type[RunConfig]
    run: Callable[[], "type[Run]"]


def _gpt2() -> "type[Run]":
    from course_lib.pretrain.gpt2 import Gpt2

    return Gpt2


def _gptsan() -> "type[Run]":
    from course_lib.gptsan.run import GPTSanRun

    return GPTSanRun


def _prefix() -> "type[Run]":
    from course_lib.prefix.run import PrefixRun

    return PrefixRun


# The kinds that `kind` in a settings file may name. Without it, as earlier versions wrote files, the first that takes
# the file.
KINDS = {
    "pretrain": Kind(PretrainConfig, _gpt2),
    "gptsan": Kind(GPTSanRunConfig, _gptsan),
    "prefix": Kind(PrefixConfig, _prefix),
}


def memory(
    config: Config = None,
    overrides: Overrides = None,
    *,
    gpus: Annotated[int | None, Option("--gpus", min=1, help="GPUs; default: launch.ranks")] = None,
) -> object:
    """Plan the GPU memory of a run for every ZeRO stage and recompute choice, and list the cards that it fits.

    The settings are those of `course pretrain`, `course gptsan train` or `course prefix train`.
    """
    from course_lib.training import planner

    settings = planned(config, overrides)
    settings.batch.resolve(gpus or settings.launch.ranks or 1)
    return Shown(planner.report(settings, gpus), planner.table(settings, gpus))


def _is_model_of(run: Path, target: Path) -> bool:
    """Return whether a product is what a run exports into its own folder."""
    return target.absolute() == run.absolute() / MODEL


def export(
    run: Annotated[Path, Argument(metavar="RUN", help="folder of a run", parser=path), MayHold(_is_model_of)],
    target: Output,
    *,
    step: Annotated[int | None, Option("--step", min=0, help="checkpoint to export; default: the latest one")] = None,
    dtype: Annotated[
        NumberFormat | None,
        Option("--dtype", help="number format of the weights; default: that of the training"),
    ] = None,
    license: Annotated[str | None, Option("--license", help="license on the model card, such as apache-2.0")] = None,
) -> object:
    """Export what a run has trained: a model, with its tokenizer, as a Hugging Face folder, or a prefix as a file.

    All options but --step are for a GPT-2 or GPT-NeoX.
    """
    settings = load(run / CONFIG)
    kind: Any = KINDS[settings.kind].run()
    options = {"dtype": dtype, "license": license}
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if not isinstance(settings, PretrainConfig):
            raise UsageError(f"--{name}: not allowed for a run of `course {kind.command}`; allowed: --step")
    return kind(train.in_folder(settings, run)).export(target, step, **given)


def load(file: Path, overrides: Sequence[str] | None = None) -> RunConfig:
    """Return the settings of a run of the kind that the file names; without `kind`, of the first that accepts them.

    Raises UsageError if there is no such kind, or if it does not accept the settings. Without `kind`, the error is that
    of the first kind.
    """
    values = profiles.read_yaml(file)
    if "kind" in values:
        kind = str(values["kind"])
        if kind not in KINDS:
            raise UsageError(f"{file}: kind: {kind!r} is not allowed; allowed: {', '.join(KINDS)}")
        return configuration.load(KINDS[kind].settings, file, overrides or ())
    errors = []
    for each in KINDS.values():
        try:
            return configuration.load(each.settings, file, overrides or ())
        except UsageError as error:
            errors.append(error)
    raise errors[0]


def planned(config: Path | None, overrides: Sequence[str] | None) -> RunConfig:
    """Return the settings of a run for the memory planner; without a file, those of the profile's pretraining."""
    if config is None or profiles.profile_of_option(config):
        return configuration.load(PretrainConfig, train.pretrain_file(config), overrides or ())
    settings = load(config, overrides)
    if isinstance(settings, GPTSanRunConfig) and not train.has_shape(config):
        from course_lib.gptsan import products

        return products.planned(settings)
    return settings
