"""The three training commands, and what a command for another kind of run takes from them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from course_lib.checkpoints import aozora
from course_lib.command_line import output
from course_lib.command_line.from_options import Lists
from course_lib.command_line.options import Config, Note, Overrides
from course_lib.command_line.options import output as output_option
from course_lib.errors import UsageError, notify
from course_lib.gptsan.config import RECIPE_SECTION as GPTSAN_RECIPE
from course_lib.gptsan.config import GPTSanRunConfig
from course_lib.language.words import tr
from course_lib.prefix.config import FILE, PrefixConfig
from course_lib.prefix.config import RECIPE_SECTION as PREFIX_RECIPE
from course_lib.pretrain.config import RECIPE_SECTION as PRETRAIN_RECIPE
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config as configuration
from course_lib.settings import profiles
from course_lib.training import sbatch
from course_lib.training.run_dir import MODEL

if TYPE_CHECKING:
    from course_lib.training.run import Run

# Options of every training command.
RunFolder = Annotated[Path | None, output_option("folder of the run; overrides engine.output_dir"), Note.PRODUCT]
Resume = Annotated[bool, Option("--resume", help="continue from the last complete checkpoint")]
PrintSbatch = Annotated[bool, Option("--print-sbatch", help="print a Slurm script for this run, and do not start it")]


def pretrain(
    target: RunFolder = None,
    config: Annotated[Config, Lists(PretrainConfig)] = None,
    overrides: Overrides = None,
    *,
    resume: Resume = False,
    print_sbatch: PrintSbatch = False,
) -> object:
    """Pretrain a GPT-2 or GPT-NeoX and export it.

    The settings are those of the YAML file or profile that -c names, by default those of the current profile's run.
    Inputs that they leave unset are the products of the profile.
    """
    # The settings are checked before torch is imported, which takes seconds.
    file = pretrain_file(config)
    settings = configuration.load(PretrainConfig, file, overrides or ())
    if print_sbatch:
        return sbatch.script(settings.launch, ["pretrain"], file, overrides, target).rstrip("\n")
    settings = in_folder(complete_pretrain(settings), target)
    from course_lib.pretrain.gpt2 import Gpt2

    return train_and_export(Gpt2(settings), resume, MODEL)


def gptsan_train(
    target: RunFolder = None,
    config: Annotated[Config, Lists(GPTSanRunConfig)] = None,
    overrides: Overrides = None,
    *,
    resume: Resume = False,
    print_sbatch: PrintSbatch = False,
) -> object:
    """Train a GPTSAN, or those parts that are not frozen, and export it.

    The settings are those of the YAML file or profile that -c names, by default those of the current profile's run.
    Inputs that they leave unset are the products of the profile.
    """
    file = gptsan_file(config)
    settings = configuration.load(GPTSanRunConfig, file, overrides or ())
    if print_sbatch:
        return sbatch.script(settings.launch, ["gptsan", "train"], file, overrides, target).rstrip("\n")
    settings = in_folder(_complete_gptsan(settings, file), target)
    from course_lib.gptsan.run import GPTSanRun

    return train_and_export(GPTSanRun(settings), resume, MODEL)


def prefix_train(
    target: RunFolder = None,
    config: Annotated[Config, Lists(PrefixConfig)] = None,
    overrides: Overrides = None,
    *,
    resume: Resume = False,
    print_sbatch: PrintSbatch = False,
) -> object:
    """Train a prefix of a frozen model and export it.

    The settings are those of the YAML file or profile that -c names, by default those of the current profile's run.
    Inputs that they leave unset are the products of the profile.
    """
    file = prefix_file(config)
    settings = configuration.load(PrefixConfig, file, overrides or ())
    if print_sbatch:
        return sbatch.script(settings.launch, ["prefix", "train"], file, overrides, target).rstrip("\n")
    settings = in_folder(_complete_prefix(settings), target)
    from course_lib.prefix.run import PrefixRun

    return train_and_export(PrefixRun(settings), resume, MODEL if settings.model.method == "full" else FILE)


def pretrain_file(config: Path | None) -> Path:
    """Return the settings file that -c names, or that of the profile's pretraining."""
    return _file(config, lambda profile: PRETRAIN_RECIPE.read(of=profile).config)


def gptsan_file(config: Path | None) -> Path:
    """Return the settings file that -c names, or that of the run that trains the profile's extra stage."""
    return _file(config, lambda profile: GPTSAN_RECIPE.read(of=profile).extra)


def prefix_file(config: Path | None) -> Path:
    """Return the settings file that -c names, or that of the profile's first prefix."""
    return _file(config, lambda profile: PREFIX_RECIPE.read(of=profile).tasks[0])


def _file(config: Path | None, of_profile: Callable[[str | None], str]) -> Path:
    """Return the file that -c names, or that of the profile that it names or of the current one, and tell the user."""
    profile = profiles.profile_of_option(config)
    if config and not profile:
        return config
    file = of_profile(profile)
    notify(tr("settings: {path}, the run of profile {profile}", path=file, profile=profile or profiles.current_name()))
    return Path(file)


def in_folder(settings: Any, target: Path | None) -> Any:
    """Return the settings of a run in the folder that -o names, if it names one."""
    if target is None:
        return settings
    return replace(settings, engine=replace(settings.engine, output_dir=target))


def train_and_export(run: "Run", resume: bool, name: str) -> str | None:
    """Train a run and export it as `name` in its folder; return what is printed."""
    from course_lib.training.loop import train

    trained = train(run, resume)
    # Of several ranks, the process that started them exports, or else the first rank.
    if not trained.goes_on:
        return None
    product = trained.folder / name
    return f"{output.text(run.export(product))} → {product}"


def complete_pretrain(settings: PretrainConfig) -> PretrainConfig:
    """Return the settings, using the profile's token files and tokenizer if neither is set."""
    from course_lib.pretrain.products import TOKENS, with_products
    from course_lib.subword.products import tokenizer

    if settings.data.input and settings.data.tokenizer:
        return settings
    return with_products(settings, TOKENS.path(), tokenizer().path())


def _complete_gptsan(settings: GPTSanRunConfig, file: Path) -> GPTSanRunConfig:
    """Return the settings, using the profile's products if the checkpoint or the examples are unset.

    A run whose settings file has a `model.shape`, but no checkpoint and no frozen parameters, trains a new model on the
    corpus examples. Any other run uses the extra stage and the examples with classes.
    """
    from course_lib.gptsan import products

    fresh = has_shape(file) and settings.model.checkpoint is None
    if fresh and settings.model.ignore is None:
        if settings.data.input is None:
            settings = products.with_data(settings, products.CORPUS.path(), products.VOCABULARY.path())
        return settings
    if fresh and file.name != GPTSAN_RECIPE.read().extra:
        raise UsageError(
            f"model.checkpoint: not set; the shape in {file} is for the memory planner only; "
            "give a folder written by `course gptsan add-extra-stage`"
        )
    if settings.data.input is None:
        settings = products.with_data(settings, products.CLASSES.path())
    if settings.model.checkpoint is None:
        settings = products.with_stage(settings, products.EXTRA.path() / products.MODEL)
    return settings


def has_shape(file: Path) -> bool:
    """Return whether a settings file says the shape of a model."""
    model = profiles.read_yaml(file).get("model")
    return isinstance(model, dict) and "shape" in model


def _complete_prefix(settings: PrefixConfig) -> PrefixConfig:
    """Return the settings, using the course's samples for the task and the profile's base model where unset."""
    from course_lib.prefix import products

    settings = products.with_data(settings)
    if settings.data.input == products.pairs(settings.task_name):
        products.PAIRS.path()
    base = settings.model.base
    base = aozora.named(base) if base else products.base().path() / products.MODEL
    return replace(settings, model=replace(settings.model, base=base))
