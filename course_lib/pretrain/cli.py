"""The `course` commands for chapter 4: tokenize, tokens, pretrain, export, convert, generate and push."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.command_line import options
from course_lib.errors import CourseError, UsageError
from course_lib.generation.config import GenerateConfig
from course_lib.language.words import tr
from course_lib.pretrain.config import PretrainConfig, RecipeConfig
from course_lib.settings import config as configuration
from course_lib.training.run_verb import RunKind, Step

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="a Hugging Face model folder")]
Tokenizer = Annotated[Path, typer.Option("--tokenizer", metavar="T", help="tokenizer folder")]


def tokenize(
    sources: Annotated[list[Path], typer.Argument(metavar="IN...", help="segmented .txt lines, or .jsonl documents")],
    tokenizer: Tokenizer,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PREFIX", help="writes PREFIX.bin and PREFIX.idx")],
    workers: options.Workers = options.WORKERS,
    append_eod: Annotated[bool, typer.Option("--append-eod", help="put </s> after every document")] = False,
) -> None:
    """Tokenize a corpus into files of token ids in Megatron's indexed format."""
    # Without NumPy threads, the workers can be forked, which takes only milliseconds.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from course_lib.pretrain import encode, indexed

    report = encode.tokenize(sources, tokenizer, output, workers, append_eod)
    print(f"{report.summary()} → {', '.join(map(str, indexed.files_of(output)))}")


def tokens(
    prefixes: Annotated[list[Path], typer.Argument(metavar="PREFIX...", help="token files, without .bin or .idx")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help="merge the files, in order, into OUT")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="correct an index that does not count end-of-document tokens")
    ] = False,
    as_json: Json = False,
) -> None:
    """Count the sequences, documents and tokens of token files; merge the files; correct an index."""
    from course_lib.pretrain import indexed

    if repair and output:
        raise UsageError("--repair, -o: one at a time; repair first, then merge")
    if output:
        summaries = {str(output): indexed.merge(prefixes, output)}
    else:
        summaries = {str(prefix): (indexed.repair if repair else indexed.summarize)(prefix) for prefix in prefixes}
    rows = [
        {"prefix": name, "sequences": s.sequences, "documents": s.documents, "tokens": s.tokens, "dtype": str(s.dtype),
         "problem": s.explanation} for name, s in summaries.items()
    ]  # fmt: skip
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    for row in rows:
        print(
            tr(
                "{prefix}: {sequences:,} sequences, {documents:,} documents, {tokens:,} tokens, {dtype}",
                prefix=row["prefix"],
                sequences=row["sequences"],
                documents=row["documents"],
                tokens=row["tokens"],
                dtype=row["dtype"],
            )
        )
        if row["problem"]:
            print(f"  {row['problem']}")
    if len(rows) > 1:
        print(
            tr(
                "all: {sequences:,} sequences, {documents:,} documents, {tokens:,} tokens",
                sequences=sum(s.sequences for s in summaries.values()),
                documents=sum(s.documents for s in summaries.values()),
                tokens=sum(s.tokens for s in summaries.values()),
            )
        )


def _complete(settings: PretrainConfig, _file: Path) -> PretrainConfig:
    """Return the settings, using the profile's token files and tokenizer if neither is set."""
    from course_lib.pretrain.products import TOKENS, with_products
    from course_lib.subword.products import BPE

    if settings.data.input and settings.data.tokenizer:
        return settings
    return with_products(settings, TOKENS.path(), BPE.path())


def _run(settings: PretrainConfig, resume: bool) -> str:
    from course_lib.pretrain.export import export
    from course_lib.pretrain.gpt2 import Gpt2
    from course_lib.training import launch, run_dir

    run = launch.train(Gpt2(settings), resume)
    if run.followed:
        return tr(launch.FOLLOWED)
    folder = export(run.folder, run.folder / run_dir.MODEL).folder
    return tr("{steps} steps → {folder}", steps=run.steps, folder=folder)


RUN = RunKind(
    PretrainConfig,
    of_profile=lambda profile: configuration.section("pretrain.recipe", RecipeConfig, of=profile).config,
    complete=_complete,
    run=_run,
)
pretrain = RUN.verb(
    "Pretrain a GPT-2 or GPT-NeoX with DeepSpeed, on the GPUs or CPU of one or more nodes, and export the model.",
    "folder of the run; overrides engine.output_dir",
)


def export(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="folder of a run, one of its checkpoints, or a raw DeepSpeed checkpoint"),
    ],
    output: options.Output,
    dtype: Annotated[
        NumberFormat | None,
        typer.Option(help="number format of the weights; default: the format of the training"),
    ] = None,
    license: Annotated[str | None, typer.Option(help="license on the model card, such as apache-2.0")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "-c", "--config", metavar="FILE", help="for a raw checkpoint: the run's YAML settings, or a config.json"
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", metavar="T", help="for a raw checkpoint: its tokenizer folder")
    ] = None,
    step: Step = None,
) -> None:
    """Export the model of a run as a Hugging Face folder, with its tokenizer and a model card."""
    from course_lib.pretrain import export as exporter

    print(exporter.export(source, output, dtype, license, config, tokenizer, step).summary())


def convert_megatron(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CKPT", help="a Megatron-DeepSpeed checkpoint folder: global_stepN, or its parent")
    ],
    output: options.Output,
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", metavar="T", help="tokenizer folder to copy; its size sets the vocabulary size"),
    ] = None,
    dtype: Annotated[
        NumberFormat | None,
        typer.Option(help="number format of the weights; default: the checkpoint's"),
    ] = None,
    checkpoint_version: Annotated[
        float | None,
        typer.Option(help="checkpoint format, which sets the order of QKV rows; default: the checkpoint's own"),
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="number of attention heads, if the checkpoint does not record it")
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="vocabulary size to keep; default: the tokenizer's number of entries")
    ] = None,
) -> None:
    """Turn a Megatron-DeepSpeed GPT checkpoint into a Hugging Face GPT-2."""
    from course_lib.pretrain.megatron import convert

    report = convert(
        checkpoint,
        output,
        tokenizer,
        dtype=dtype,
        checkpoint_version=checkpoint_version,
        heads=heads,
        vocab_size=vocab_size,
    )
    print(report.summary())


def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="raw Japanese text; - reads standard input")],
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Continue a raw Japanese text with a model; normalization, segmentation and its inverse are automatic."""
    from course_lib.pretrain import generate as generator

    settings = options.given(GenerateConfig, config, overrides)
    text = _standard_input() if prompt == "-" else prompt
    for generated in generator.generate(model, text, settings):
        print(generated)


def push(
    model: Model,
    repo: Annotated[str, typer.Argument(metavar="REPO", help="repository on the Hub: NAME or OWNER/NAME")],
    private: Annotated[bool, typer.Option("--private", help="make the repository private")] = False,
) -> None:
    """Upload a model folder to the Hugging Face Hub. The token comes from HF_TOKEN or `hf auth login`."""
    from course_lib.checkpoints import push as pusher

    print(pusher.push(model, repo, private))


def _standard_input() -> str:
    """Return the text from standard input, without trailing line breaks."""
    try:
        return sys.stdin.buffer.read().decode("utf8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise CourseError(f"standard input: not UTF-8 at byte {error.start}") from None
