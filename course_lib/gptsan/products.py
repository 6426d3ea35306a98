"""Products for chapter 5: vocabulary, examples, base model, base model with an extra stage, and tuned model."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib import paths
from course_lib.checkpoints import fetch
from course_lib.corpus import products as corpus
from course_lib.corpus.products import DOCUMENTS
from course_lib.documents import read_texts
from course_lib.errors import UsageError
from course_lib.gptsan.config import (
    CLASSES_SECTION,
    CORPUS_SECTION,
    RECIPE_SECTION,
    VOCABULARY_SECTION,
    EncodeConfig,
    GPTSanRunConfig,
    VocabularyConfig,
)
from course_lib.gptsan.shape import GPTSanShape
from course_lib.parallel import default_workers
from course_lib.settings import config, profiles
from course_lib.workspace.products import Product

if TYPE_CHECKING:
    from course_lib.gptsan.encode import Source
    from course_lib.gptsan.examples import Examples
    from course_lib.gptsan.run import GPTSanRun

CLASSES_LIST = "classified/list.csv"
# Documents of each genre of the small world that are examples of its class, and their seed.
CLASS_DOCUMENTS, CLASS_SEED = 300, 3
# Modules that fix what a run learns: its loss, its samples and its model. Others, such as the loop, may change.
TRAINING = (
    "gptsan/run.py", "gptsan/samples.py", "gptsan/examples.py", "gptsan/model.py", "gptsan/attention.py",
    "gptsan/experts.py", "gptsan/freeze.py",
)  # fmt: skip
# Contains one folder per run, next to the products, so that interrupted training can be resumed.
RUNS = "gptsan/runs"
# Name of the model folder inside a product folder; from_pretrained can load it.
MODEL = "model"
# Changes to these modules make encoded examples stale.
ENCODING = ("gptsan/encode.py", "gptsan/layouts.py", "gptsan/swe.py", "gptsan/cleaning.py")


def base_settings() -> GPTSanRunConfig:
    """Return the settings for the run that trains the base model in the active profile."""
    return config.load(GPTSanRunConfig, RECIPE_SECTION.read().base)


def tuned_settings() -> GPTSanRunConfig:
    """Return the settings for the run that trains the extra stage in the active profile."""
    return config.load(GPTSanRunConfig, RECIPE_SECTION.read().extra)


def _vocabulary(folder: Path, inputs: list[Path], settings: VocabularyConfig | dict[str, Any]) -> dict[str, Any]:
    from course_lib.gptsan.swe import FILES
    from course_lib.gptsan.vocabulary import build_vocabulary

    # that of a ready base
    if isinstance(settings, dict):
        for name in FILES:
            shutil.copyfile(inputs[0] / MODEL / name, folder / name)
        return {}
    texts = (text for source in inputs for text in read_texts(source / DOCUMENTS))
    counts = build_vocabulary(texts, settings.size, folder, settings.character_coverage)
    return {name: counts[name] for name in ("entries", "texts")}


def _corpus(folder: Path, inputs: list[Path], settings: EncodeConfig) -> dict[str, Any]:
    from course_lib.gptsan.encode import Source

    tokenizer, *sources = inputs
    return _examples(folder, tokenizer, [Source(source / DOCUMENTS) for source in sources], settings)


def _classes(folder: Path, inputs: list[Path], settings: EncodeConfig) -> dict[str, Any]:
    from course_lib.gptsan.encode import Source, list_documents
    from course_lib.world.genres import GENRES, write_documents

    if not corpus.has_world():
        return _examples(folder, inputs[0], list_documents(str(inputs[1]), settings.d_spout), settings)
    with tempfile.TemporaryDirectory() as work_folder:
        sources = [Source(Path(work_folder) / f"{genre.name}.jsonl", number) for number, genre in enumerate(GENRES)]
        for genre, source in zip(GENRES, sources, strict=True):
            write_documents(source.path, CLASS_DOCUMENTS, CLASS_SEED, (genre,))
        return _examples(folder, inputs[0], sources, settings)


def _examples(folder: Path, tokenizer: Path, sources: "list[Source]", settings: EncodeConfig) -> dict[str, Any]:
    from course_lib.gptsan.encode import encode_documents

    report = encode_documents(sources, tokenizer, folder, settings, default_workers())
    return {name: report[name] for name in ("examples", "tokens")}


def _base(folder: Path, inputs: list[Path], settings: GPTSanRunConfig | dict[str, Any]) -> dict[str, Any]:
    if isinstance(settings, dict):
        return fetch.fetch(settings["checkpoint"], folder / MODEL)
    from course_lib.training import run_product
    from course_lib.training.loop import silent, train

    run = run_product.in_workspace(base_run(inputs, settings), f"{RUNS}/{BASE.run_name()}")
    trained = train(run, resume=True, on_message=silent)
    return run_product.counts(trained, folder) | _tensors(run.export(folder / MODEL))


def _tuned(folder: Path, inputs: list[Path], settings: GPTSanRunConfig) -> dict[str, Any]:
    from course_lib.training import run_product
    from course_lib.training.loop import silent, train

    run = run_product.in_workspace(tuned_run(inputs, settings), f"{RUNS}/{TUNED.run_name()}")
    trained = train(run, resume=True, on_message=silent)
    return run_product.counts(trained, folder) | _tensors(run.export(folder / MODEL))


def _tensors(report: dict[str, int]) -> dict[str, int]:
    return {"trained tensors": report["trained"], "frozen tensors": report["frozen"]}


def base_run(inputs: list[Path], settings: GPTSanRunConfig) -> "GPTSanRun":
    """Return the run that trains the base, on the products VOCABULARY and CORPUS."""
    from course_lib.gptsan.run import GPTSanRun

    return GPTSanRun(with_data(settings, inputs[1], inputs[0]))


def tuned_run(inputs: list[Path], settings: GPTSanRunConfig) -> "GPTSanRun":
    """Return the run that trains the extra stage, on the products EXTRA and CLASSES."""
    from course_lib.gptsan.run import GPTSanRun

    return GPTSanRun(with_stage(with_data(settings, inputs[1]), inputs[0] / MODEL))


def _extra(folder: Path, inputs: list[Path], settings: dict[str, Any]) -> dict[str, Any]:
    from course_lib.gptsan.extra_stage import add_extra_stage

    report = add_extra_stage(inputs[0] / MODEL, folder / MODEL, settings["layers"])
    return {"layers": report["layers"], "new parameters": report["new"], "kept parameters": report["kept"]}


def with_data(settings: GPTSanRunConfig, examples: Path, tokenizer: Path | None = None) -> GPTSanRunConfig:
    """Return the settings with the given examples and tokenizer if data.input is not set."""
    if settings.data.input:
        return settings
    if settings.data.tokenizer:
        raise UsageError("data.tokenizer: set without data.input; give both, or neither for the profile's own")
    return replace(settings, data=replace(settings.data, input=examples, tokenizer=tokenizer))


def with_stage(settings: GPTSanRunConfig, stage: Path) -> GPTSanRunConfig:
    """Return the settings with the extra stage in the `stage` folder if model.checkpoint is not set."""
    from course_lib.gptsan.extra_stage import IGNORE

    if settings.model.checkpoint:
        return settings
    return replace(settings, model=replace(settings.model, checkpoint=stage, ignore=stage / IGNORE))


def _named_files(settings: GPTSanRunConfig) -> list[Path]:
    """Return the files that a run's settings name instead of products: examples, tokenizer, checkpoint."""
    named = settings.data.input, settings.data.tokenizer, settings.model.checkpoint
    found = [path for folder in named if folder for path in sorted(folder.glob("*")) if path.is_file()]
    return [*found, settings.model.ignore] if isinstance(settings.model.ignore, Path) else found


def planned(settings: GPTSanRunConfig) -> GPTSanRunConfig:
    """Return the settings for the memory planner: without checkpoint and shape, those of the profile's extra stage."""
    if settings.model.checkpoint or settings.model.shape != GPTSanShape():
        return settings
    recipe = RECIPE_SECTION.read()
    base = GPTSanShape() if recipe.checkpoint else base_settings().model.shape
    shape = replace(base, num_ext_layers=base.num_ext_layers + recipe.extra_layers)
    length = settings.data.num_context
    if length is None and settings.data.input is None:
        length = CLASSES_SECTION.read().num_context
    return replace(
        settings,
        model=replace(settings.model, shape=shape, ignore="base"),
        data=replace(settings.data, num_context=length),
    )


def _base_settings() -> GPTSanRunConfig | dict[str, Any]:
    ready = RECIPE_SECTION.read().checkpoint
    return {"checkpoint": ready} if ready else base_settings()


def _corpus_settings() -> EncodeConfig:
    if ready := RECIPE_SECTION.read().checkpoint:
        raise UsageError(
            f"product 'gptsan/corpus' does not exist in profile {profiles.current_name()}, whose base is ready: {ready}"
        )
    return CORPUS_SECTION.read()


def _classes_inputs() -> tuple[Path | Product, ...]:
    from course_lib.gptsan.encode import list_documents

    if corpus.has_world():
        return (VOCABULARY,)
    listed = paths.data(CLASSES_LIST)
    texts = (document.path for document in list_documents(str(listed), 1 << 20))
    return (VOCABULARY, listed, *texts)


# Tokenizer, built from the corpus or copied from an existing base model.
VOCABULARY = Product(
    "gptsan/vocabulary",
    build=_vocabulary,
    settings=lambda: {} if RECIPE_SECTION.read().checkpoint else VOCABULARY_SECTION.read(),
    inputs=lambda: (BASE,) if RECIPE_SECTION.read().checkpoint else corpus.texts_of_gptsan(),
    code=("gptsan/vocabulary.py",),
)
# Examples without classes; not in profiles whose gptsan.recipe.checkpoint names an existing base model.
CORPUS = Product(
    "gptsan/corpus",
    build=_corpus,
    settings=_corpus_settings,
    inputs=lambda: (VOCABULARY, *corpus.texts_of_gptsan()),
    code=ENCODING,
)
# Base model: a copy of the one that gptsan.recipe.checkpoint names, or a new one trained on the corpus.
BASE: Product = Product(
    "gptsan/base",
    build=_base,
    settings=_base_settings,
    inputs=lambda: () if RECIPE_SECTION.read().checkpoint else (VOCABULARY, CORPUS, *_named_files(base_settings())),
    code=lambda: () if RECIPE_SECTION.read().checkpoint else TRAINING,
    identity=lambda settings: settings if isinstance(settings, dict) else settings.content(),
    trains=lambda inputs, settings: "" if isinstance(settings, dict) else base_run(inputs, settings).title(),
)
# Examples with classes: genres of the small world in a profile that has one, else the texts in data/classified.
CLASSES = Product(
    "gptsan/classes",
    build=_classes,
    settings=CLASSES_SECTION.read,
    inputs=_classes_inputs,
    code=(*ENCODING, *corpus.GENERATOR),
)
# Base model with extra layers.
EXTRA = Product(
    "gptsan/extra",
    build=_extra,
    settings=lambda: {"layers": RECIPE_SECTION.read().extra_layers},
    inputs=(BASE,),
    code=("gptsan/extra_stage.py",),
)
# Base model with extra layers, trained on the examples with classes.
TUNED = Product(
    "gptsan/tuned",
    build=_tuned,
    settings=tuned_settings,
    inputs=lambda: (EXTRA, CLASSES, *_named_files(tuned_settings())),
    code=TRAINING,
    identity=GPTSanRunConfig.content,
    trains=lambda inputs, settings: tuned_run(inputs, settings).title(),
)


def products() -> list[Product]:
    """Return the chapter's products in the current profile, in build order."""
    first = [BASE, VOCABULARY] if RECIPE_SECTION.read().checkpoint else [VOCABULARY, CORPUS, BASE]
    return [*first, CLASSES, EXTRA, TUNED]


def class_names() -> list[str]:
    """Return the name of each class: the genres of the small world, or the folders in CLASSES_LIST."""
    from course_lib.world.genres import GENRES

    if corpus.has_world():
        return [genre.name for genre in GENRES]
    lines = paths.data(CLASSES_LIST).read_text(encoding="utf8").splitlines()[1:]
    found = {int(label): name.partition("/")[0] for name, label in (line.split(",") for line in lines)}
    return [found[label] for label in sorted(found)]


def build_base() -> str:
    """Train or fetch the base if it is missing, and return one line that says where it comes from."""
    recipe = RECIPE_SECTION.read()
    return fetch.origin(BASE.path() / MODEL, recipe.checkpoint, recipe.base)


def base_examples() -> tuple["Examples", "Examples"]:
    """Return training and held-out examples on which to measure the base.

    They are those of its run. With a ready base, whose training texts the course does not have: those with classes.
    """
    from course_lib.gptsan.examples import Examples

    ready = RECIPE_SECTION.read().checkpoint
    settings = tuned_settings() if ready else base_settings()
    return Examples((CLASSES if ready else CORPUS).path()).split(settings.data.held_out, settings.engine.seed)
