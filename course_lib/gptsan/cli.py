"""Subcommands for chapter 5: `course gptsan …`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from course_lib.command_line import options
from course_lib.errors import UsageError
from course_lib.gptsan.config import GptsanConfig, RecipeConfig, VocabularyConfig
from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.gptsan.generation_config import FillConfig, GenerateConfig
from course_lib.language.words import tr
from course_lib.settings import config as configuration
from course_lib.settings import profiles
from course_lib.training.run_verb import RunKind, Step

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="folder of a GPTSAN")]
Spout = Annotated[
    str | None,
    typer.Option("--spout", metavar="K", help="class number (from 0), uniform, zeros or none; default: none"),
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="seed of the random generator; default: 0")]


def summary(report: dict[str, Any], output: Path) -> str:
    """Return the numbers in a report on one line: `documents 192, examples 512 → output`."""
    sizes = {name: len(value) if isinstance(value, dict) else value for name, value in report.items()}
    shown = [f"{name.replace('_', ' ')} {size:,}" for name, size in sizes.items() if isinstance(size, int) and size]
    return f"{', '.join(shown)} → {output}"


def vocabulary(
    sources: Annotated[list[Path], typer.Argument(metavar="IN...", help="documents: .jsonl, or plain text")],
    output: options.Output,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Build a vocabulary in the published format (vocab.txt, emoji.json) from a corpus."""
    from course_lib.documents import read_texts
    from course_lib.gptsan.vocabulary import build_vocabulary

    settings = options.settings(VocabularyConfig, "gptsan.vocabulary", config, overrides)
    texts = (text for path in sources for text in read_texts(path))
    counts = build_vocabulary(texts, settings.size, output, settings.character_coverage)
    print(summary(counts, output))


def encode(
    source: Annotated[
        str, typer.Option("--input", metavar="LIST", help="a CSV file `filename,fileid`, or a pattern: '*.txt'")
    ],
    output: options.Output,
    mode: Annotated[Literal["lm", "mlm", "hybrid"] | None, typer.Option("--mode", help="default: lm")] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", metavar="T", help="tokenizer folder; default: the profile's vocabulary"),
    ] = None,
    config: options.Config = None,
    overrides: options.Set = None,
    workers: options.Workers = options.WORKERS,
) -> None:
    """Encode texts as training examples: TFRecord files for the original's tools, arrays for `course gptsan train`.

    The defaults fit the published model; `-c tiny` encodes for the model of the profile tiny.
    """
    from course_lib.gptsan import encode as encoder
    from course_lib.gptsan import products

    changes = [*(overrides or []), *([f"mode={mode}"] if mode else [])]
    settings = options.settings(EncodeConfig, "gptsan.classes", config, changes)
    report = encoder.encode(source, tokenizer or products.VOCABULARY.path(), output, settings, workers)
    print(summary(report, output))


def import_tf(
    source: Annotated[
        Path, typer.Argument(metavar="DIR", help="checkpoint of the original: folder, prefix or .index file")
    ],
    output: options.Output,
) -> None:
    """Convert a TensorFlow checkpoint of the original GPTSAN to a Hugging Face folder."""
    from course_lib.gptsan import import_tf as importer

    print(summary(importer.import_tf(source, output), output))


def add_extra_stage(
    source: Annotated[Path, typer.Argument(metavar="CKPT", help="folder of a GPTSAN; it is not changed")],
    output: options.Output,
    layers: Annotated[int, typer.Option("--layers", help="number of new layers on top")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="seed of the new weights")] = 0,
) -> None:
    """Add layers to a GPTSAN; write the list of frozen parameters and the settings that train the others."""
    from course_lib.gptsan import extra_stage

    print(summary(extra_stage.add_extra_stage(source, output, layers, seed), output))


def _complete(settings: GptsanConfig, file: Path) -> GptsanConfig:
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
    if settings.model.checkpoint is None and fresh and file.name != _of_profile(None):
        raise UsageError(
            f"model.checkpoint: not set; the shape in {file} is for the memory planner only; "
            "give a folder written by `course gptsan add-extra-stage`"
        )
    if settings.data.input is None:
        settings = products.with_data(settings, products.CLASSES.path())
    if settings.model.checkpoint is None:
        settings = products.with_stage(settings, products.EXTRA.path() / products.MODEL)
    return settings


def _planned(settings: GptsanConfig, file: Path) -> GptsanConfig:
    from course_lib.gptsan.products import planned

    return settings if _has_shape(file) else planned(settings)


def _has_shape(file: Path) -> bool:
    model = profiles.read_yaml(profiles.find(file)).get("model")
    return isinstance(model, dict) and "shape" in model


def _of_profile(profile: str | None) -> str:
    return configuration.section("gptsan.recipe", RecipeConfig, of=profile).extra


def _run(settings: GptsanConfig, resume: bool) -> str:
    from course_lib.gptsan.export import export
    from course_lib.gptsan.task import Gptsan
    from course_lib.training import launch, run_dir

    run = launch.train(Gptsan(settings), resume)
    if run.followed:
        return tr(launch.FOLLOWED)
    model = run.folder / run_dir.MODEL
    return summary(export(run.folder, model), model)


RUN = RunKind(GptsanConfig, of_profile=_of_profile, complete=_complete, run=_run, planned=_planned)
train = RUN.verb(
    "Train a new GPTSAN, or the parameters of one that are not frozen, with DeepSpeed; then export the model.\n\n"
    "If the settings name no checkpoint or no examples, the profile's extra stage and examples are used.",
    "the run's folder; sets engine.output_dir",
)


def export(
    source: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")],
    output: options.Output,
    step: Step = None,
) -> None:
    """Write the model of a run's latest complete checkpoint as a Hugging Face folder."""
    from course_lib.gptsan.export import export as write

    print(summary(write(source, output, step), output))


def generate(
    model: Model,
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="beginning of the texts; default: none")] = "",
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="text before TEXT; attention in both directions")
    ] = "",
    spout: Spout = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=0, help="sample from the K most probable tokens; 0 = all; default: 120")
    ] = None,
    num_generate: Annotated[
        int | None, typer.Option("--num-generate", min=1, help="number of texts; default: 1")
    ] = None,
    seed: Seed = None,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Generate texts with a GPTSAN, steered by its spout."""
    from course_lib.gptsan.generate import Generator

    settings = options.given(
        GenerateConfig, config, overrides, spout=spout, top_k=top_k, num_generate=num_generate, seed=seed
    )
    for written in Generator.open(model).continue_text(text, settings, prefix):
        print(written)


def fill(
    model: Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="text with one or more [MASK]")],
    spout: Spout = None,
    seed: Seed = None,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Fill the masks of a text; the model must be trained on mlm or hybrid examples."""
    from course_lib.gptsan.fill import fill as fill_masks
    from course_lib.gptsan.generate import Generator

    settings = options.given(FillConfig, config, overrides, spout=spout, seed=seed)
    filled = fill_masks(Generator.open(model), text, settings)
    print(filled.text)
    for number, choices in enumerate(filled.masks, 1):
        print(f"  {number}: " + ", ".join(f"{choice.piece} {choice.probability:.3f}" for choice in choices))
