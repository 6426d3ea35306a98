"""The `evaluate` command. It has a separate module because it covers the models of several chapters."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from course_lib import paths
from course_lib.checkpoints import aozora
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.command_line.from_options import FromOptions
from course_lib.command_line.options import MayHold, Note, output, path
from course_lib.command_line.output import Shown
from course_lib.errors import CourseError, UsageError
from course_lib.evaluation.copies import CopySearch, CopySettings
from course_lib.evaluation.pairs import Pair
from course_lib.evaluation.scoring import GeneratingModel
from course_lib.evaluation.trigram import Trigram
from course_lib.files import atomic_write, inner_suffix, read_json
from course_lib.language.words import tr
from course_lib.unmarked import json_of

if TYPE_CHECKING:
    from course_lib.evaluation.tasks import Tasks

GRAMMAR, WORLD = "grammar", "world"
TRIGRAM, UNIGRAM = "character trigram", "character unigram"
# Keys of the result in JSON.
RESULT = {"data", "window", "stride", "models"}


def _may_hold(model: Path, target: Path) -> bool:
    """Return whether a result may be written into a model's folder: as a new file, or over an earlier result."""
    if not model.is_dir() or target.is_dir():
        return False
    return not target.exists() or json_of(target).keys() == RESULT


def evaluate(
    models: Annotated[
        list[Path],
        Argument(metavar="MODEL", help="GPT-2, GPT-NeoX or GPTSAN folders, or aozora", parser=path),
        MayHold(_may_hold),
        Note.MODEL,
    ],
    target: Annotated[Path | None, output("also write the result as JSON"), Note.PRODUCT] = None,
    *,
    data: Annotated[
        list[Path] | None,
        Option("--data", help="raw documents (.jsonl or .txt), or a folder of them; repeatable", parser=path),
    ] = None,
    minimal_pairs: Annotated[
        str | None,
        Option(
            "--minimal-pairs",
            help="also judge minimal pairs: grammar, world (facts of the small world), a clone of JBLiMP, or JSONL: "
            '"phenomenon", "good", "bad"',
        ),
        Note.NAMES_FILE,
    ] = None,
    tasks: Annotated[
        list[str] | None,
        Option(
            "--tasks",
            help="also run a task of lm-evaluation-harness: its name, such as japanese_leaderboard, or a YAML file; "
            "repeatable",
        ),
        Note.NAMES_FILE,
    ] = None,
    limit: Annotated[int | None, Option("--limit", help="examples of each task, the first ones; default: all")] = None,
    prefix: Annotated[
        list[Path] | None,
        Option("--prefix", help="evaluate the one MODEL also with this prefix; repeatable", parser=path),
    ] = None,
    spout: Annotated[str | None, Option("--spout", help="GPTSAN: none (default), zeros, or a class number")] = None,
    trigram: Annotated[
        list[Path] | None,
        Option("--trigram", help="also evaluate a character trigram model of these documents; repeatable", parser=path),
    ] = None,
    dtype: Annotated[
        NumberFormat,
        Option("--dtype", help="number format to compute in; fp32 gives the same figures on every machine"),
    ] = "fp32",
    training: Annotated[
        list[Path] | None,
        Option(
            "--training",
            help="what the models have learned: also evaluate a character unigram and trigram model of these documents "
            "on --data, and search texts that each MODEL writes for spans copied from them; repeatable",
            parser=path,
        ),
    ] = None,
    top_p: Annotated[
        list[float] | None,
        Option(
            "--top-p",
            min=0.01,
            max=1,
            help="copied spans: a token is drawn from this share of the probability; repeatable; "
            "default: 0.75, 0.95 and 1, with GPTSAN 1",
        ),
    ] = None,
    settings: Annotated[CopySettings, FromOptions()],
) -> object:
    """Measure models side by side: bits per character of raw text, minimal pairs, and copies of the training text.

    Bits count all tokens of a document and its end token, over all raw characters but line breaks, those that
    normalization changes included; `lost` is the share of characters that the model's tokens do not restore. Minimal
    pairs are also judged by a character trigram model, by default of the texts that the models of COURSE_PROFILE learn.
    With --training, each MODEL continues the beginnings of the documents of --data; the share of windows of 20, 30 and
    50 characters that stand in the training text is printed beside the same share of the documents themselves.
    """
    from course_lib.evaluation import copies, report
    from course_lib.japanese import normalize

    if training and (trigram or not data):
        raise UsageError("--training: needs --data, documents that the models have not learned, and no --trigram")
    if not data and not minimal_pairs and not tasks:
        raise UsageError(tr("--data, --minimal-pairs, --tasks: none is set; give at least one of them"))
    if limit is not None and (limit < 1 or not tasks):
        raise UsageError(f"--limit: {limit}; allowed: a positive number of examples, together with --tasks")
    if prefix and len(models) > 1:
        raise UsageError(f"--prefix: not allowed with {len(models)} models; a prefix belongs to one model")
    files = [file for path in data or () for file in _files(path)]
    pairs = read_pairs(minimal_pairs) if minimal_pairs else ()
    inputs = report.Inputs.read(files, pairs, settings, _tasks(tasks or (), limit))
    learned = [file for path in training or () for file in _files(path)]
    for source in learned:
        if next(report.documents([source]), None) is None:
            raise CourseError(f"{source}: no document in it")
    prompts = copies.prompts(report.documents(files), settings) if training else []
    results, written = list[report.Result](), copies.Texts()
    for name, model in _opened(models, prefix or (), spout, dtype):
        results.append(report.evaluate(name, model, inputs))
        if training:
            written |= report.samples(name, model, prompts, settings, top_p)
    if training:
        search = copies.CopySearch(copies.beside_held_out(written, prompts), normalize)
        counted = _searched_and_counted(learned, search)
        results.append(report.evaluate(UNIGRAM, counted.unigram(), replace(inputs, pairs=())))
        results.append(report.evaluate(TRIGRAM, counted, inputs))
        results = report.with_copies(results, search.copies())
    elif (inputs.files and trigram) or inputs.pairs:
        results.append(report.evaluate(TRIGRAM, trigram_model(trigram), inputs))
    content = report.to_dict(inputs, results)
    if target:
        with atomic_write(target) as file:
            file.write(json.dumps(content, ensure_ascii=False, indent=1).encode("utf8", "replace") + b"\n")
    return Shown(content, report.table(results))


def _tasks(chosen: Sequence[str], limit: int | None) -> "Tasks | None":
    if not chosen:
        return None
    try:
        from course_lib.evaluation.tasks import Tasks
    except ModuleNotFoundError as error:
        raise UsageError("--tasks: lm_eval is not installed; pip install 'japanese-lm-course[evaluate]'") from error
    return Tasks.load(chosen, limit)


def read_pairs(source: str) -> list[Pair]:
    """Return the course's minimal pairs of grammar or of the small world's facts, or those of a file."""
    from course_lib.evaluation import pairs

    if source == WORLD:
        from course_lib.world.pairs import by_distance

        return [Pair(name, pair.good, pair.bad) for name, pair in by_distance()]
    return pairs.read_pairs(paths.data("minimal_pairs.jsonl") if source == GRAMMAR else Path(source))


def open_model(
    folder: Path, prefix: Path | None = None, spout: int | str | None = None, dtype: NumberFormat = "fp32"
) -> GeneratingModel:
    """Open a GPT-2 or GPT-NeoX, with a prefix or without, or a GPTSAN, with a spout or without, for evaluation.

    Weights of another number format are converted to `dtype`: in bf16, bits of two machines differ.
    """
    from course_lib.checkpoints import model_folder
    from course_lib.checkpoints.torch_dtypes import TORCH
    from course_lib.gptsan.shape import MODEL_TYPE
    from course_lib.models.families import BY_MODEL_TYPE

    family = read_json(folder / model_folder.CONFIG).get("model_type")
    if family == MODEL_TYPE:
        from course_lib.gptsan.generate import GPTSanGenerator
        from course_lib.gptsan.score import GPTSanScorer

        if prefix:
            raise UsageError(f"--prefix: not allowed with {folder}, a GPTSAN model; allowed: GPT-2 and GPT-NeoX")
        return GPTSanScorer(GPTSanGenerator.open(folder, dtype=TORCH[dtype]), "none" if spout is None else spout)
    if spout is not None:
        raise UsageError(f"--spout: not allowed with {folder}, a {family} model; allowed: GPTSAN")
    if family not in BY_MODEL_TYPE:
        raise CourseError(f"{folder}: a {family} model; allowed: {', '.join([*BY_MODEL_TYPE, MODEL_TYPE])}")
    from course_lib.evaluation.causal import FolderScorer
    from course_lib.generation.generator import Generator
    from course_lib.prefix.files import read
    from course_lib.pretrain import text_codec

    known = read(prefix) if prefix else None
    return FolderScorer(Generator(folder, text_codec.load, dtype=TORCH[dtype]), known)


def trigram_model(files: Sequence[Path] | None = None) -> Trigram:
    """Return a character trigram model of the normalized documents in files; None: what the profile's models learn."""
    from course_lib.corpus import products
    from course_lib.evaluation.report import documents
    from course_lib.japanese import normalize

    corpus = files or [product.path() / products.DOCUMENTS for product in products.texts()]
    return Trigram(documents(corpus), normalize)


def _searched_and_counted(files: Sequence[Path], search: CopySearch[tuple[str, str]]) -> Trigram:
    """Return a character trigram model of the normalized documents in files, which the search reads, too.

    One pass for both: normalization takes two thirds of the time.
    """
    from course_lib.evaluation.report import documents
    from course_lib.japanese import normalize
    from course_lib.notebooks.progress import progress

    with progress(None, "char", "training text") as bar:
        normalized = map(normalize, documents(files))
        return Trigram(search.reading(normalized, bar), normalize, normalized=True)


def _opened(
    folders: Sequence[Path], prefixes: Sequence[Path], spout: str | None, dtype: NumberFormat
) -> Iterator[tuple[str, GeneratingModel]]:
    """Yield (name, model) for each folder without a prefix, and then for each prefix; one model is open at a time."""
    for name, folder in zip(_names(folders), folders, strict=True):
        yield name, open_model(folder, None, spout, dtype)
        for prefix in prefixes:
            yield f"{name} + {prefix.stem}", open_model(folder, prefix, spout, dtype)


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' paths without the first and last parts that all of them have in common."""
    folders = [Path(aozora.NAME) if aozora.is_ours(folder) else folder for folder in folders]
    rows = [list(folder.parts) for folder in folders]
    for end in (0, -1):
        while len({row[end] for row in rows}) == 1 and all(len(row) > 1 for row in rows):
            for row in rows:
                row.pop(end)
    return ["/".join(row) for row in rows] if len(folders) > 1 else [str(folders[0])]


def _files(path: Path) -> list[Path]:
    """Return the document files of a folder, sorted by name, or the file itself."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if inner_suffix(file) in (".txt", ".jsonl"))
    if not files:
        raise CourseError(f"{path}: no .txt or .jsonl file in it")
    return files
