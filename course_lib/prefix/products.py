"""Products for chapter 6: pairs of texts for its tasks, and a prefix for each task of the profile.

The base is chapter 4's GPT-2, or a published model that the profile names. Runs are kept next to the products, as in
chapter 4.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib import paths
from course_lib.checkpoints import fetch
from course_lib.errors import UsageError
from course_lib.prefix.config import FILE, RECIPE_SECTION, PrefixConfig, QuickConfig
from course_lib.pretrain import products as pretrain
from course_lib.pretrain.config import RECIPE_SECTION as PRETRAIN_RECIPE
from course_lib.settings import config
from course_lib.workspace.products import Product

if TYPE_CHECKING:
    from course_lib.prefix.run import PrefixRun

# Modules that fix what a run learns: its loss, its samples and its model. Others, such as the loop, may change.
TRAINING = (
    "prefix/run.py", "prefix/data.py", "prefix/samples.py", "prefix/model.py", "prefix/encoder.py",
    "prefix/warm_start.py",
)  # fmt: skip
# Contains one folder per run.
RUNS = "prefix/runs"
# Documents from which pairs are made.
DOCUMENTS = 2_000
# Tasks whose pairs are made from documents of the small world: a file for each.
WITH_PAIRS = ("title", "question", "plain", "plain-once")
# Name of the model folder in the base model's product.
MODEL = "model"


def _published(folder: Path, _inputs: list[Path], settings: dict[str, Any]) -> dict[str, Any]:
    return fetch.fetch(settings["checkpoint"], folder / MODEL)


def _pairs(folder: Path, _inputs: list[Path], settings: dict[str, Any]) -> dict[str, Any]:
    from course_lib.world.tasks import write_pairs

    return write_pairs(folder, settings["documents"], settings["seed"])


def prefix_run(inputs: list[Path], settings: PrefixConfig) -> "PrefixRun":
    """Return the run that trains a prefix, on the base and the texts in `inputs`."""
    from course_lib.prefix.run import PrefixRun

    base, texts = inputs
    # The course's own pairs are a product, with a file for each task.
    source = texts if texts.is_file() else texts / f"{settings.task_name}.jsonl"
    model, data = replace(settings.model, base=base / MODEL), replace(settings.data, input=source)
    return PrefixRun(replace(settings, model=model, data=data))


def _task(folder: Path, inputs: list[Path], settings: PrefixConfig) -> dict[str, Any]:
    from course_lib.training import run_product
    from course_lib.training.loop import silent, train

    run = run_product.in_workspace(prefix_run(inputs, settings), f"{RUNS}/{task(settings.task_name).run_name()}")
    trained = train(run, resume=True, on_message=silent)
    run.export(folder / FILE)
    return run_product.counts(trained, folder)


# A published base: a copy of the one that recipe.checkpoint names.
PUBLISHED = Product("prefix/base", build=_published, settings=lambda: {"checkpoint": RECIPE_SECTION.read().checkpoint})
# Prompts and targets of the tasks WITH_PAIRS, made from documents that no model has read.
PAIRS = Product("prefix/pairs", build=_pairs, settings={"documents": DOCUMENTS, "seed": 2}, code=("world",))


def base() -> Product:
    """Return the product whose model/ is the frozen base: chapter 4's GPT-2, or a published model."""
    return PUBLISHED if RECIPE_SECTION.read().checkpoint else pretrain.GPT2


def products() -> list[Product]:
    """Return the chapter's products for the current profile, in build order."""
    return [*([PUBLISHED] if RECIPE_SECTION.read().checkpoint else []), PAIRS, *tasks()]


def task(name: str) -> Product:
    """Return a task's product: its prefix and run log. Raises UsageError if the profile has no such task."""
    settings = _settings_of(name)
    source = with_data(settings).data.input
    assert source
    # The course's own pairs are an input as a product, whose folder may not be there yet.
    texts = PAIRS if source == pairs(name) else source
    return Product(
        f"prefix/{name}",
        build=_task,
        settings=settings,
        inputs=(base(), texts),
        code=TRAINING,
        identity=PrefixConfig.content,
        trains=lambda inputs, settings: prefix_run(inputs, settings).title(),
    )


def tasks() -> list[Product]:
    """Return the products for the profile's tasks, in order."""
    return [task(name) for name in _runs()]


def task_settings() -> dict[str, PrefixConfig]:
    """Return the settings for the runs that train the profile's prefixes, by task name."""
    return {name: with_data(settings) for name, settings in _runs().items()}


def run_settings(task: str, *overrides: str) -> PrefixConfig:
    """Return the settings for a task's run on the profile's base model, with overrides `key=value`."""
    values = config.to_dict(with_data(_settings_of(task)))
    values["model"]["base"] = str(base().folder / MODEL)
    return config.build(PrefixConfig, values, overrides)


def quick() -> QuickConfig:
    """Return the settings of the notebook's short runs in the current profile."""
    return RECIPE_SECTION.read().quick


def build_base() -> str:
    """Train or fetch the base if it is missing, and return one line that says where it comes from."""
    run = PRETRAIN_RECIPE.read().config
    return fetch.origin(base().path() / MODEL, RECIPE_SECTION.read().checkpoint, run)


def _runs() -> dict[str, PrefixConfig]:
    """Return the settings of the profile's runs by task name, as their files have them."""
    runs = [config.load(PrefixConfig, file) for file in RECIPE_SECTION.read().tasks]
    return {settings.task_name: settings for settings in runs}


def _settings_of(task: str) -> PrefixConfig:
    runs = _runs()
    if task not in runs:
        raise UsageError(f"task: the profile has no task {task!r}; allowed: {', '.join(runs)}")
    return runs[task]


def pairs(task: str) -> Path:
    """Return the file of the course's own pairs for a task."""
    return PAIRS.folder / f"{task}.jsonl"


def with_data(settings: PrefixConfig) -> PrefixConfig:
    """Return the settings, with data.input set to the course's samples for the task if it is unset."""
    if settings.data.input:
        return settings
    name = settings.task_name
    source = pairs(name) if name in WITH_PAIRS else paths.data(f"tasks/{name}.jsonl")
    return replace(settings, data=replace(settings.data, input=source))
