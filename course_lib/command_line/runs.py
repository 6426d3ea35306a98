"""The three training verbs, the export of their runs, and the settings that they share with `course memory`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.command_line import output
from course_lib.command_line.output import Shown
from course_lib.errors import UsageError, notify
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.config import RecipeConfig as GptsanRecipe
from course_lib.language.words import tr
from course_lib.prefix.config import FILE, PrefixConfig
from course_lib.prefix.config import RecipeConfig as PrefixRecipe
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.config import RecipeConfig as PretrainRecipe
from course_lib.settings import config as configuration
from course_lib.settings import profiles
from course_lib.training import sbatch
from course_lib.training.run_dir import CONFIG, MODEL


@dataclass(frozen=True)
class RunKind:
    """A kind of training run: its verb, its settings, and its package, whose module `export` exports a run."""

    verb: str
    settings: type[Any]
    package: str
    task: str  # module:class of the task in this package
    of_profile: Callable[[str | None], str]  # profile name → settings file for its run
    complete: Callable[[Any, Path], Any]  # (settings, their file) → settings with course products where unset
    planned: Callable[[Any, Path], Any] = lambda settings, _file: settings  # `complete` for the planner
    product: Callable[[Any], str] = lambda _settings: MODEL  # settings → name of what is exported in the run's folder

    def read(self, file: Path | None, overrides: Sequence[str] | None) -> tuple[Any, Path]:
        """Return a run's settings and their file: the one of -c, or that of the profile -c names or the current one."""
        profile = profiles.named(file)
        if file is None or profile:
            file = Path(self.of_profile(profile))
            line = tr("settings: {path}, the run of profile {profile}", path=file, profile=profile or profiles.name())
            notify(line)
        return configuration.load(self.settings, file, overrides or ()), file

    def train(
        self,
        target: Annotated[Path | None, "folder of the run; overrides engine.output_dir"] = None,
        config: Path | None = None,
        overrides: Sequence[str] = (),
        *,
        resume: Annotated[bool, "continue from the last complete checkpoint"] = False,
        print_sbatch: Annotated[bool, "print a Slurm script for this run, and do not start it"] = False,
    ) -> object:
        """Train a model with DeepSpeed and export it.

        The settings are those of the YAML file or profile that -c names, by default those of the current profile's run.
        Inputs that they leave unset are the products of the profile.
        """
        # The settings are checked before torch is imported, which takes seconds.
        settings, file = self.read(config, overrides)
        if print_sbatch:
            return sbatch.script(settings.launch, self.verb.split(), file, overrides, target).rstrip("\n")
        settings = self.complete(settings, file)
        if target:
            settings = replace(settings, engine=replace(settings.engine, output_dir=target))
        from course_lib.training.loop import train

        run = train(self.load(self.task)(settings), resume)
        product = run.folder / self.product(settings)
        return f"{output.text(self.load('export:export')(run.folder, product))} → {product}"

    def load(self, name: str) -> Any:
        """Return a class or function of the package, given as module:name."""
        return resolve_name(f"course_lib.{self.package}.{name}")


def _complete_pretrain(settings: PretrainConfig, _file: Path) -> PretrainConfig:
    """Return the settings, using the profile's token files and tokenizer if neither is set."""
    from course_lib.pretrain.products import TOKENS, with_products
    from course_lib.subword.products import tokenizer

    if settings.data.input and settings.data.tokenizer:
        return settings
    return with_products(settings, TOKENS.path(), tokenizer().path())


def _gptsan_of_profile(profile: str | None) -> str:
    return configuration.section("gptsan.recipe", GptsanRecipe, of=profile).extra


def _complete_gptsan(settings: GptsanConfig, file: Path) -> GptsanConfig:
    """Return the settings, using the profile's products if the checkpoint or the examples are unset.

    A run whose settings file has a `model.shape`, but no checkpoint and no frozen parameters, trains a new model on the
    corpus examples. Any other run uses the extra stage and the examples with classes.
    """
    from course_lib.gptsan import products

    fresh = _has_shape(file) and settings.model.checkpoint is None
    if fresh and settings.model.ignore is None:
        if settings.data.input is None:
            settings = products.with_data(settings, products.CORPUS.path(), products.VOCABULARY.path())
        return settings
    if fresh and file.name != _gptsan_of_profile(None):
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


def _complete_prefix(settings: PrefixConfig, _file: Path) -> PrefixConfig:
    """Return the settings, using the course's samples for the task and the profile's base model where unset."""
    from course_lib.prefix import products

    settings = products.with_data(settings)
    if settings.data.input == products.pairs(settings.task_name):
        products.PAIRS.path()
    if settings.model.base:
        return settings
    return replace(settings, model=replace(settings.model, base=products.base().path() / products.MODEL))


PRETRAIN = RunKind(
    "pretrain",
    PretrainConfig,
    "pretrain",
    "gpt2:Gpt2",
    of_profile=lambda profile: configuration.section("pretrain.recipe", PretrainRecipe, of=profile).config,
    complete=_complete_pretrain,
)
GPTSAN = RunKind(
    "gptsan train", GptsanConfig, "gptsan", "task:Gptsan", _gptsan_of_profile, _complete_gptsan, _planned_gptsan
)
PREFIX = RunKind(
    "prefix train",
    PrefixConfig,
    "prefix",
    "task:PrefixRun",
    of_profile=lambda profile: configuration.section("prefix.recipe", PrefixRecipe, of=profile).tasks[0],
    complete=_complete_prefix,
    product=lambda settings: MODEL if settings.model.method == "full" else FILE,
)
KINDS = (PRETRAIN, GPTSAN, PREFIX)


def kind_of(file: Path | None) -> RunKind:
    """Return the kind of run that matches the most keys in a settings file; without a file, PRETRAIN."""
    keys = configuration.flat(profiles.read_yaml(profiles.find(file))).keys() if file else set()
    # On a tie, min returns the first kind.
    return min(KINDS, key=lambda kind: len(keys - {key for key, *_ in configuration.describe(kind.settings)}))


def settings_of(file: Path | None, overrides: Sequence[str] | None) -> Any:
    """Return the settings of a run for the planner."""
    kind = kind_of(file)
    return kind.planned(*kind.read(file, overrides))


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


def _is_model_of(run: Path, target: Path) -> bool:
    """Return whether a product is what a run exports into its own folder."""
    return target.absolute() == run.absolute() / MODEL


def export(
    run: Annotated[Path, "folder of a run", {"holds": _is_model_of}],
    target: Path,
    *,
    step: Annotated[int | None, "checkpoint to export; default: the latest one", {"min": 0}] = None,
    dtype: Annotated[NumberFormat | None, "number format of the weights; default: that of the training"] = None,
    license: Annotated[str | None, "license on the model card, such as apache-2.0"] = None,
) -> object:
    """Export what a run has trained: a model, with its tokenizer, as a Hugging Face folder, or a prefix as a file.

    All options but --step are for a GPT-2 or GPT-NeoX.
    """
    kind = kind_of(run / CONFIG)
    given = {"step": step, "dtype": dtype, "license": license}
    given = {name: value for name, value in given.items() if value is not None}
    if kind is not PRETRAIN and (wrong := given.keys() - {"step"}):
        raise UsageError(f"--{min(wrong)}: not allowed for a run of `course {kind.verb}`; allowed: --step")
    return kind.load("export:export")(run, target, **given)
