"""The three training verbs, and the settings that they share with `course memory`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from course_lib.command_line import options, output
from course_lib.command_line.output import Shown
from course_lib.errors import UsageError
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.config import RecipeConfig as GptsanRecipe
from course_lib.language.words import tr
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.config import RecipeConfig as PrefixRecipe
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.config import RecipeConfig as PretrainRecipe
from course_lib.settings import config as configuration
from course_lib.settings import profiles
from course_lib.training import sbatch
from course_lib.training.settings import RunConfig

Settings = TypeVar("Settings", bound=RunConfig)


@dataclass(frozen=True)
class RunKind(Generic[Settings]):
    """A kind of training run: its verb, its settings class, and the functions that complete, start and plan a run."""

    verb: str
    settings: type[Settings]
    of_profile: Callable[[str | None], str]  # profile name → settings file for its run
    complete: Callable[[Settings, Path], Settings]  # replaces unset inputs with course products
    run: Callable[[Settings, bool], str]  # trains, or resumes if True, and exports the model; returns a line to print
    planned: Callable[[Settings, Path], Settings] = lambda settings, _file: settings  # `complete` for the planner

    def read(self, file: Path | None, overrides: Sequence[str] | None) -> tuple[Settings, Path]:
        """Return the settings for a run and the path to its settings file.

        The file is the one that -c names, the one for the profile that -c names, or the one for the current profile.
        """
        chosen = options.run_file(file, self.of_profile)
        return configuration.load(self.settings, chosen, overrides or ()), chosen

    def train(
        self,
        target: Annotated[Path | None, "folder of the run; overrides engine.output_dir"] = None,
        config: Path | None = None,
        overrides: Sequence[str] = (),
        *,
        resume: Annotated[bool, "continue from the last complete checkpoint"] = False,
        node_rank: Annotated[int | None, "number of this node, with launch.no_ssh; overrides launch.node_rank"] = None,
        print_sbatch: Annotated[bool, "print a Slurm script for this run, and do not start it"] = False,
    ) -> object:
        """Train a model with DeepSpeed and export it.

        The settings are those of the YAML file or profile that -c names, by default those of the current profile's run.
        Inputs that they leave unset are the products of the profile.
        """
        # The settings are checked before torch is imported, which takes seconds.
        if node_rank is not None:
            overrides = [*overrides, f"launch.node_rank={node_rank}"]
        settings, file = self.read(config, overrides)
        if print_sbatch:
            return sbatch.script(settings.launch, self.verb.split(), file, overrides, target).rstrip("\n")
        settings = self.complete(settings, file)
        if target:
            settings = replace(settings, engine=replace(settings.engine, output_dir=target))
        return self.run(settings, resume)


def _complete_pretrain(settings: PretrainConfig, _file: Path) -> PretrainConfig:
    """Return the settings, using the profile's token files and tokenizer if neither is set."""
    from course_lib.pretrain.products import TOKENS, with_products
    from course_lib.subword.products import BPE

    if settings.data.input and settings.data.tokenizer:
        return settings
    return with_products(settings, TOKENS.path(), BPE.path())


def _pretrain(settings: PretrainConfig, resume: bool) -> str:
    from course_lib.pretrain.export import export
    from course_lib.pretrain.gpt2 import Gpt2
    from course_lib.training import launch, run_dir

    run = launch.train(Gpt2(settings), resume)
    if run.followed:
        return tr(launch.FOLLOWED)
    folder = export(run.folder, run.folder / run_dir.MODEL).folder
    return tr("{steps} steps → {folder}", steps=run.steps, folder=folder)


PRETRAIN = RunKind(
    "pretrain",
    PretrainConfig,
    of_profile=lambda profile: configuration.section("pretrain.recipe", PretrainRecipe, of=profile).config,
    complete=_complete_pretrain,
    run=_pretrain,
)


def _complete_gptsan(settings: GptsanConfig, file: Path) -> GptsanConfig:
    """Return the settings, using the profile's products if the checkpoint or the examples are unset.

    A run whose settings file has a `model.shape`, but no checkpoint and no frozen parameters, trains a new model on the
    corpus examples. Any other run uses the extra stage and the examples with classes.

    Raises UsageError if the file sets no checkpoint and has a shape that is only for the memory planner.
    """
    from course_lib.gptsan import products

    fresh = _has_shape(file)
    if fresh and not settings.model.checkpoint and settings.model.ignore is None:
        if settings.data.input is None:
            settings = products.with_data(settings, products.CORPUS.path(), products.VOCABULARY.path())
        return settings
    if settings.model.checkpoint is None and fresh and file.name != _gptsan_of_profile(None):
        raise UsageError(
            f"model.checkpoint: not set; the shape in {file} is for the memory planner only; "
            "give a folder written by `course gptsan add-extra-stage`"
        )
    if settings.data.input is None:
        settings = products.with_data(settings, products.CLASSES.path())
    if settings.model.checkpoint is None:
        settings = products.with_stage(settings, products.EXTRA.path() / products.MODEL)
    return settings


def _planned_gptsan(settings: GptsanConfig, file: Path) -> GptsanConfig:
    from course_lib.gptsan.products import planned

    return settings if _has_shape(file) else planned(settings)


def _has_shape(file: Path) -> bool:
    model = profiles.read_yaml(profiles.find(file)).get("model")
    return isinstance(model, dict) and "shape" in model


def _gptsan_of_profile(profile: str | None) -> str:
    return configuration.section("gptsan.recipe", GptsanRecipe, of=profile).extra


def _gptsan(settings: GptsanConfig, resume: bool) -> str:
    from course_lib.gptsan.export import export
    from course_lib.gptsan.task import Gptsan
    from course_lib.training import launch, run_dir

    run = launch.train(Gptsan(settings), resume)
    if run.followed:
        return tr(launch.FOLLOWED)
    model = run.folder / run_dir.MODEL
    return f"{output.text(export(run.folder, model))} → {model}"


GPTSAN = RunKind(
    "gptsan train",
    GptsanConfig,
    of_profile=_gptsan_of_profile,
    complete=_complete_gptsan,
    run=_gptsan,
    planned=_planned_gptsan,
)


def _complete_prefix(settings: PrefixConfig, _file: Path) -> PrefixConfig:
    """Return the settings, using the course's samples for the task and the profile's base model where unset."""
    from course_lib.prefix import products

    settings = products.with_data(settings)
    if settings.model.base:
        return settings
    return replace(settings, model=replace(settings.model, base=products.BASE.path() / products.MODEL))


def _prefix(settings: PrefixConfig, resume: bool) -> str:
    from course_lib.prefix.export import export
    from course_lib.prefix.task import PrefixTask
    from course_lib.training import launch

    run = launch.train(PrefixTask(settings), resume)
    return tr(launch.FOLLOWED) if run.followed else export(run.folder).summary()


PREFIX = RunKind(
    "prefix train",
    PrefixConfig,
    of_profile=lambda profile: configuration.section("prefix.recipe", PrefixRecipe, of=profile).tasks[0],
    complete=_complete_prefix,
    run=_prefix,
)
KINDS: tuple[RunKind[Any], ...] = (PRETRAIN, GPTSAN, PREFIX)


def memory(
    config: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    gpus: Annotated[int | None, "GPUs; default: launch.ranks", {"min": 1}] = None,
) -> object:
    """Plan the GPU memory of a run for every ZeRO stage and recompute choice, and list the cards that it fits.

    The settings are those of `course pretrain`, `course gptsan train` or `course prefix train`.
    """
    from course_lib.training import planner

    settings = settings_of(config, overrides)
    settings.batch.resolve(gpus or settings.launch.ranks or 1)
    return Shown(planner.report(settings, gpus), planner.table(settings, gpus))


def settings_of(file: Path | None, overrides: Sequence[str] | None) -> Any:
    """Return the settings for the kind of run that matches the most keys in the file; without a file, to pretrain."""
    content = configuration.flat(profiles.read_yaml(profiles.find(file))) if file else {}

    def unknown(kind: RunKind[Any]) -> int:
        return len(content.keys() - {key for key, *_ in configuration.describe(kind.settings)})

    # On a tie, min returns the first kind.
    kind = min(KINDS, key=unknown)
    return kind.planned(*kind.read(file, overrides))
