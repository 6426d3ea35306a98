"""Commands for chapter 2: `course segment` and `course segment-eval`."""

from pathlib import Path
from typing import Annotated

import typer

from course_lib.command_line import options
from course_lib.errors import UsageError
from course_lib.japanese.config import SegmentConfig
from course_lib.language.words import tr


def segment(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="IN...", help="documents: .jsonl, or .txt with an empty line between documents"),
    ],
    output: options.Output,
    segmenter: Annotated[
        str | None, typer.Option("--segmenter", metavar="mecab|jumanpp", help="program that finds the words")
    ] = None,
    workers: options.Workers = options.WORKERS,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Normalize documents, split them into sentences and segment the sentences into words, one sentence per line."""
    from course_lib.japanese.pipeline import segment_file

    chosen = [*(overrides or []), *([f"segmenter={segmenter}"] if segmenter else [])]
    settings = options.settings(SegmentConfig, "japanese.segment", config, chosen)
    print(segment_file(sources, output, settings, workers).summary() + f" → {output}")


def segment_eval(
    source: Annotated[
        Path, typer.Argument(metavar="GOLD", help="text segmented by hand: a sentence a line, a space between words")
    ],
    segmenter: Annotated[
        list[str] | None,
        typer.Option(
            "--segmenter", metavar="mecab|jumanpp|characters", help="compare these; default: all that are here"
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="accept sentences that are not normalized")] = False,
) -> None:
    """Compare segmenters with text segmented by hand: precision, recall and F1 over words, and speed."""
    from course_lib.japanese.gold import read_gold, score, segmenters, table
    from course_lib.japanese.jumanpp import JumanppSegmenter

    chosen = segmenter or []
    if unknown := [name for name in chosen if name not in ("mecab", "jumanpp", "characters")]:
        raise UsageError(f"--segmenter: {unknown[0]!r} does not exist; allowed: mecab, jumanpp, characters")
    gold = read_gold(source, normalized=not raw)
    if "jumanpp" in chosen:
        # Report a missing executable with the way to get it.
        JumanppSegmenter.from_path()
    found = segmenters()
    print(
        tr(
            "{sentences} sentences, {words} words in {file}",
            sentences=len(gold),
            words=sum(map(len, gold)),
            file=source,
        )
    )
    print(table({name: score(gold, found[name]) for name in chosen or found}))
