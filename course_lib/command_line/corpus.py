"""Commands that turn dumps into text, words, tokenizers and tokens."""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from course_lib.command_line.from_options import FromOptions
from course_lib.command_line.options import CORES, Note, Output, TextOutput, Workers, output, path
from course_lib.command_line.output import Shown
from course_lib.corpus.config import (
    DOWNLOAD_SECTION,
    WEBTEXT_SECTION,
    WIKIPEDIA_SECTION,
    AozoraConfig,
    Dataset,
    DownloadConfig,
    WebtextConfig,
    WikipediaConfig,
)
from course_lib.errors import UsageError
from course_lib.files import STANDARD_OUTPUT, require_other, require_replaceable
from course_lib.japanese.config import SEGMENT_SECTION, SegmentConfig
from course_lib.language.words import tr, tr_noop
from course_lib.scale.config import Engine, ScaleConfig
from course_lib.subword.config import BPE_SECTION, UNIGRAM_SECTION, BpeConfig, UnigramConfig

if TYPE_CHECKING:
    from course_lib.corpus.report import CorpusReport

# Arguments of several commands.
Corpus = Annotated[
    list[Path],
    Argument(metavar="SOURCE", help="segmented .txt lines, or .jsonl documents; - reads standard input", parser=path),
    Note.INPUT_FILE,
]


def download(
    dataset: Annotated[Dataset, Argument(metavar="DATASET", help="jawiki: Japanese Wikipedia; cc100: web text")],
    settings: Annotated[DownloadConfig, FromOptions(DOWNLOAD_SECTION)],
    target: Annotated[Path, output("folder for the file"), Note.PRODUCT] = Path("downloads"),
    *,
    date: Annotated[str, Option("--date", help="day of the dump, such as 20261101, or latest")] = "latest",
    part: Annotated[int | None, Option("--part", help="jawiki: only one part of the dump")] = None,
) -> None:
    """Download a dump and verify it."""
    from course_lib.corpus.download import download

    download(dataset, target, date, settings, part)


def wikipedia(
    dumps: Annotated[list[Path], Argument(metavar="DUMP", help=".xml, .xml.gz, .xml.bz2 or .xml.xz", parser=path)],
    target: TextOutput,
    settings: Annotated[WikipediaConfig, FromOptions(WIKIPEDIA_SECTION)],
    workers: Workers = CORES,
) -> object:
    """Extract the articles of a Wikipedia dump as plain text."""
    from course_lib.corpus.wikipedia import extract

    _require_report(dumps, target)
    return _reported(extract(dumps, target, settings, workers), target)


def webtext(
    sources: Annotated[
        list[Path],
        Argument(
            metavar="SOURCE",
            help=".txt, also compressed, with an empty line between documents; - reads standard input",
            parser=path,
        ),
        Note.INPUT_FILE,
    ],
    target: TextOutput,
    settings: Annotated[WebtextConfig, FromOptions(WEBTEXT_SECTION)],
    workers: Workers = CORES,
) -> object:
    """Filter web text and remove duplicates."""
    from course_lib.corpus.webtext import clean_webtext

    _require_report(sources, target)
    return _reported(clean_webtext(sources, target, settings, workers), target)


def aozora(
    source: Annotated[
        Path,
        Argument(metavar="SOURCE", help="clone, zip or folder of github.com/aozorahack/aozorabunko_text", parser=path),
    ],
    target: Annotated[Path, output("folder for train.jsonl, held-out.jsonl and report.json"), Note.PRODUCT],
    settings: Annotated[AozoraConfig, FromOptions()],
    workers: Workers = CORES,
    *,
    held_out: Annotated[
        Path | None,
        Option(
            "--held-out", metavar="FILE", help='JSON {"authors": […], "files": […]} of what is held out', parser=path
        ),
    ] = None,
) -> object:
    """Turn the works of Aozora Bunko into plain texts.

    Works that are not in the public domain, copies and works in the old orthography are left out. After a kill, the
    same command goes on.
    """
    from course_lib.corpus.aozora import extract_aozora

    report = extract_aozora(source, target, replace(settings, held_out=held_out or settings.held_out), workers)
    return Shown(report, f"{report.summary()} → {target}")


def _require_report(sources: Sequence[Path], target: Path) -> None:
    """Raise UsageError if the report that is written next to the product cannot be, or is one of the inputs."""
    from course_lib.corpus.report import report_path

    if target == STANDARD_OUTPUT:
        return
    report = require_replaceable(report_path(target))
    if report.is_dir():
        raise UsageError(f"-o {target}: the report next to it, {report.name}, is a directory; allowed: another name")
    for source in sources:
        require_other(source, report)


def _reported(report: "CorpusReport", target: Path) -> Shown:
    """Write the report next to the product, unless that is standard output."""
    from course_lib.corpus.report import write_report

    if target == STANDARD_OUTPUT:
        return Shown(report, report.summary())
    return Shown(report, f"{report.summary()} → {target}, {write_report(report, target).name}")


def segment(
    sources: Annotated[
        list[Path],
        Argument(
            metavar="SOURCE",
            help=".jsonl, or .txt with an empty line between documents; - reads standard input",
            parser=path,
        ),
        Note.INPUT_FILE,
    ],
    target: TextOutput,
    settings: Annotated[SegmentConfig, FromOptions(SEGMENT_SECTION)],
    workers: Workers = CORES,
) -> object:
    """Normalize documents, split them into sentences and segment the sentences into words."""
    from course_lib.japanese.pipeline import segment_file

    return segment_file(sources, target, settings, workers)


def segment_eval(
    gold: Annotated[
        Path,
        Argument(metavar="GOLD", help="text segmented by hand: a sentence a line, a space between words", parser=path),
    ],
    *,
    segmenter: Annotated[
        list[str] | None,
        Option("--segmenter", help="mecab, jumanpp or characters; repeatable; default: all that are here"),
    ] = None,
    raw: Annotated[bool, Option("--raw", help="accept sentences that are not normalized")] = False,
) -> object:
    """Compare segmenters with text segmented by hand."""
    from course_lib.japanese.gold import read_gold, score, segmenters, table
    from course_lib.japanese.jumanpp import JumanppSegmenter

    names = segmenter or []
    if unknown := [name for name in names if name not in ("mecab", "jumanpp", "characters")]:
        raise UsageError(f"--segmenter: {unknown[0]!r} does not exist; allowed: mecab, jumanpp, characters")
    sentences = read_gold(gold, normalized=not raw)
    if "jumanpp" in names:
        # Report a missing executable with the way to get it.
        JumanppSegmenter.from_path()
    found = segmenters()
    scores = {name: score(sentences, found[name]) for name in names or found}
    words = sum(map(len, sentences))
    head = tr("{sentences} sentences, {words} words in {file}", sentences=len(sentences), words=words, file=gold)
    return Shown(scores, f"{head}\n{table(scores)}")


def bpe(sources: Corpus, target: Output, settings: Annotated[BpeConfig, FromOptions(BPE_SECTION)]) -> object:
    """Train a BPE tokenizer as in the GPT-2 XL recipe.

    In .jsonl documents, which are not segmented, a whole sentence counts as one word, and training takes about 40 MB of
    memory for each MB of text: 1 GB for 23 MB. `input_sentence_size` limits it; segmented lines need less.
    """
    from course_lib.subword.bpe import train_bpe

    return _entries(train_bpe(sources, target, settings, show_progress=sys.stderr.isatty()), target)


def unigram(
    sources: Corpus, target: Output, settings: Annotated[UnigramConfig, FromOptions(UNIGRAM_SECTION)]
) -> object:
    """Train a Unigram tokenizer with sentencepiece."""
    from course_lib.subword.unigram import train_unigram

    return _entries(train_unigram(sources, target, settings), target)


def _entries(counts: dict[str, int], target: Path) -> Shown:
    message, lines = tr_noop("{entries} entries → {output}"), counts.get("lines left out")
    if lines:
        message = tr_noop("{entries} entries, {lines} lines over max_sentence_length left out → {output}")
    return Shown(counts, tr(message, entries=counts["vocabulary"], lines=lines, output=target))


def tokenize(
    sources: Corpus,
    target: Annotated[Path, output("path of the token files, without .bin or .idx"), Note.PRODUCT],
    workers: Workers = CORES,
    *,
    tokenizer: Annotated[Path, Option("--tokenizer", help="tokenizer folder", parser=path), Note.MODEL],
    append_eod: Annotated[bool, Option("--append-eod", help="put </s> after every document")] = False,
) -> object:
    """Tokenize a corpus into files of token ids in Megatron's indexed format."""
    # Without NumPy threads, the workers can be forked, which takes only milliseconds.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from course_lib.pretrain import encode, indexed

    report = encode.tokenize(sources, tokenizer, target, workers, append_eod)
    return Shown(report, f"{report.summary()} → {', '.join(map(str, indexed.files_of(target)))}")


def tokens(
    tokens: Annotated[list[Path], Argument(metavar="TOKEN", help="token files, without .bin or .idx", parser=path)],
    target: Annotated[Path | None, output("merge the files, in order, into this one"), Note.PRODUCT] = None,
    *,
    repair: Annotated[
        bool, Option("--repair", help="correct an index that does not count end-of-document tokens")
    ] = False,
) -> object:
    """Count the sequences, documents and tokens of token files, merge the files, or correct an index."""
    from course_lib.pretrain import indexed

    if repair and target:
        raise UsageError("--repair, -o: one at a time; repair first, then merge")
    if target:
        found = {target: indexed.merge(tokens, target)}
    else:
        found = {each: (indexed.repair if repair else indexed.summarize)(each) for each in tokens}
    rows: list[dict[str, Any]] = [{"prefix": str(path)} | asdict(each) for path, each in found.items()]
    line = tr_noop("{prefix}: {sequences:,} sequences, {documents:,} documents, {tokens:,} tokens")
    lines = [tr(line, **row) + (f"\n  {row['explanation']}" if row["explanation"] else "") for row in rows]
    if len(rows) > 1:
        numbers = ("sequences", "documents", "tokens")
        lines.append(tr(line, prefix=tr("all"), **{key: sum(row[key] for row in rows) for key in numbers}))
    return Shown(rows, "\n".join(lines))


def scale_run(
    target: Annotated[
        str | None,
        Option("-o", "--output", metavar="OUT", help="folder of the run, local or s3://; takes precedence over output"),
        Note.PRODUCT,
    ] = None,
    *,
    settings: Annotated[ScaleConfig, FromOptions(without=("output",))],
    executor: Annotated[Engine, Option("--executor", help="engine that runs the tasks")] = "local",
) -> object:
    """Turn dumps and web text into clean documents, a tokenizer and tokens, on one machine or a cluster."""
    from course_lib.scale.run import run

    chosen = target or settings.output
    # A relative path would mean another folder for a task on another machine.
    output = chosen if not chosen or "://" in chosen else str(Path(chosen).absolute())
    return run(replace(settings, output=output), executor)


def scale_status(
    folder: Annotated[str, Argument(metavar="FOLDER", help="folder of the run, local or s3://")],
) -> object:
    """Show the stages of a run: tasks, rates, failures with their reasons, and the time left."""
    from course_lib.scale.status import status, table

    if not folder:
        raise UsageError(tr("FOLDER: '' is not a path; allowed: a folder, local or s3://"))
    stages = status(folder)
    return Shown(stages, table(stages))


def scale_plan(settings: Annotated[ScaleConfig, FromOptions(without=("output",))]) -> object:
    """Estimate hours, memory and disk space of a run for 1 to 512 cores, from rates measured on one machine."""
    from course_lib.scale.plan import plan, table

    rows = [{"corpus": name, "cores": cores, **each._asdict()} for name, cores, each in plan(settings)[0]]
    return Shown(rows, table(settings))
