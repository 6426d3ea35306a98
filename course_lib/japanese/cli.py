"""Command for chapter 2: `course segment`."""

from pathlib import Path
from typing import Annotated

import typer

from course_lib import options
from course_lib.japanese.config import SegmentConfig


def segment(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="documents: .jsonl, or .txt with an empty line between documents")
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
    print(segment_file(source, output, settings, workers).summary() + f" → {output}")
