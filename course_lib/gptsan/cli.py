"""Verbs of chapter 5: `course gptsan …`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib import config as configuration
from course_lib import options
from course_lib.errors import UsageError
from course_lib.gptsan.config import GptsanConfig, RecipeConfig, VocabularyConfig
from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.gptsan.generation_config import FillConfig, GenerateConfig

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="a GPTSAN folder")]
Spout = Annotated[
    str | None, typer.Option("--spout", metavar="K", help="a class from 0 on, uniform, zeros or none; default: none")
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="same seed, same texts; default: 0")]


def register(app: typer.Typer) -> None:
    """Adds this chapter's verbs to the `course` command."""
    group = options.group("GPTSAN: vocabulary, examples, extra stage, training through the spout, generation.")
    group.command("vocabulary", epilog=options.epilog(VocabularyConfig))(vocabulary)
    group.command("encode", epilog=options.epilog(EncodeConfig))(encode)
    group.command("import-tf")(import_tf)
    group.command("add-extra-stage")(add_extra_stage)
    group.command("train", epilog=options.epilog(GptsanConfig))(train)
    group.command("export")(export)
    group.command("generate", epilog=options.epilog(GenerateConfig))(generate)
    group.command("fill", epilog=options.epilog(FillConfig))(fill)
    app.add_typer(group, name="gptsan")


def vocabulary(
    sources: Annotated[list[Path], typer.Argument(metavar="IN...", help="documents: .jsonl, or plain text")],
    output: options.Output,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Build a vocabulary of the published form (vocab.txt, emoji.json) from a corpus."""
    from course_lib.documents import read_texts
    from course_lib.gptsan.vocabulary import build_vocabulary

    settings = options.settings(VocabularyConfig, "gptsan.vocabulary", config, overrides)
    counts = build_vocabulary((text for path in sources for text in read_texts(path)), settings.size, output)
    print(
        f"{counts.entries:,} entries ({counts.substrings:,} substrings, {counts.single:,} characters) from {counts.texts:,} documents → {output}"
    )


def encode(
    source: Annotated[
        str, typer.Option("--input", metavar="LIST", help="a CSV `filename,fileid`, or a pattern: '*.txt'")
    ],
    output: options.Output,
    mode: Annotated[Literal["lm", "mlm", "hybrid"] | None, typer.Option("--mode", help="default: lm")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", metavar="T", help="tokenizer folder; default: the profile's own")
    ] = None,
    config: options.Config = None,
    overrides: options.Set = None,
    workers: options.Workers = options.WORKERS,
) -> None:
    """Encode texts as training examples: TFRecord for the original's tools, arrays for `course gptsan train`.

    The defaults are for the published model; `-c tiny` encodes for that of the profile tiny.
    """
    from course_lib import workspace
    from course_lib.gptsan import encode as encoder

    changes = [*(overrides or []), *([f"mode={mode}"] if mode else [])]
    settings = options.settings(EncodeConfig, "gptsan.classes", config, changes)
    report = encoder.encode(source, tokenizer or workspace.product("gptsan/vocabulary"), output, settings, workers)
    print(f"{report.summary()} → {output}")


def import_tf(
    source: Annotated[
        Path, typer.Argument(metavar="DIR", help="a checkpoint of the original: folder, prefix or .index")
    ],
    output: options.Output,
) -> None:
    """Turn a TensorFlow checkpoint of the original GPTSAN into a Hugging Face folder."""
    from course_lib.gptsan import import_tf as importer

    print(importer.import_tf(source, output).summary())


def add_extra_stage(
    source: Annotated[Path, typer.Argument(metavar="CKPT", help="a GPTSAN folder; it is only read")],
    output: options.Output,
    layers: Annotated[int, typer.Option("--layers", help="new layers, on top")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="of the new weights")] = 0,
) -> None:
    """Add layers to a GPTSAN, and write which parameters stay frozen and how to train the others."""
    from course_lib.gptsan import extra_stage

    print(extra_stage.add_extra_stage(source, output, layers, seed).summary())


def train(
    config: options.RunConfig = None,
    overrides: options.Set = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="the run's folder; engine.output_dir")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the last whole checkpoint")] = False,
) -> None:
    """Train what of a GPTSAN is not frozen (or a new one) with DeepSpeed, and export the model.

    What a file leaves open (checkpoint, examples) is the profile's own extra stage and classes.
    """
    settings = run_settings(config, overrides)  # before torch is imported, which takes seconds
    from course_lib.gptsan import launch

    if output:
        settings = replace(settings, engine=replace(settings.engine, output_dir=output))
    run = launch.train(settings, resume)
    print(launch.export(run.folder, run.folder / launch.MODEL).summary())


def run_settings(file: Path | None, overrides: list[str] | None) -> GptsanConfig:
    """The settings in -c FILE, else those of a profile's extra stage; then every --set; then the profile's products for what is open.

    Settings with a shape of their own are a new model's, and get the corpus; others get the extra stage and the classes.
    """
    from course_lib import workspace
    from course_lib.gptsan import products

    file = options.run_file(file, "gptsan.recipe", RecipeConfig, lambda recipe: recipe.extra)
    settings = configuration.load(GptsanConfig, file, overrides or ())
    fresh = "shape" in (configuration.read_yaml(_found(file)).get("model") or {})
    if fresh and not settings.model.checkpoint and settings.model.ignore is None:
        if settings.data.input is None:
            examples, words = workspace.product("gptsan/corpus"), workspace.product("gptsan/vocabulary")
            settings = products.with_data(settings, examples, words)
        return settings
    extra = configuration.section("gptsan.recipe", RecipeConfig).extra
    if settings.model.checkpoint is None and fresh and file.name != extra:
        raise UsageError(
            f"model.checkpoint: not set; the shape in {file} is for the planner; give a folder of `course gptsan add-extra-stage`"
        )
    if settings.data.input is None:
        settings = products.with_data(settings, workspace.product("gptsan/classes"))
    if settings.model.checkpoint is None:
        settings = products.with_stage(settings, workspace.product("gptsan/extra") / products.MODEL)
    return settings


def _found(file: Path) -> Path:
    places = (file, configuration.CONFIGS / file, configuration.CONFIGS / f"{file}.yaml")
    return next(path for path in places if path.is_file())


def export(
    source: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run")], output: options.Output
) -> None:
    """Write the model of a run's latest whole checkpoint as a Hugging Face folder."""
    from course_lib.gptsan import launch

    print(launch.export(source, output).summary())


def generate(
    model: Model,
    context: Annotated[str, typer.Option("--context", metavar="TEXT", help="what the texts begin with")] = "",
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="read before it, in both directions")] = "",
    spout: Spout = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=0, help="draw among so many; 0 = all; default: 120")
    ] = None,
    num_generate: Annotated[int | None, typer.Option("--num-generate", min=1, help="texts; default: 1")] = None,
    seed: Seed = None,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Let a GPTSAN write, steered by its spout."""
    from course_lib.gptsan.generate import Generator

    settings = options.given(
        GenerateConfig, config, overrides, spout=spout, top_k=top_k, num_generate=num_generate, seed=seed
    )
    for text in Generator.open(model).continue_text(context, settings, prefix):
        print(text)


def fill(
    model: Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="with [MASK] where something is to be filled in")],
    spout: Spout = None,
    seed: Seed = None,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Fill the masks of a text; for models trained on mlm or hybrid examples."""
    from course_lib.gptsan.fill import fill as fill_masks
    from course_lib.gptsan.generate import Generator

    settings = options.given(FillConfig, config, overrides, spout=spout, seed=seed)
    filled = fill_masks(Generator.open(model), text, settings)
    print(filled.text)
    for number, choices in enumerate(filled.masks, 1):
        print(f"  {number}: " + ", ".join(f"{choice.piece} {choice.probability:.3f}" for choice in choices))
