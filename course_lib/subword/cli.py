"""Commands for chapter 3: `course tokenizer bpe` and `course tokenizer unigram`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from course_lib.command_line import options
from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.subword.config import BpeConfig, UnigramConfig

Inputs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="IN...", help="segmented .txt lines (from `course segment`), or .jsonl documents"),
]
Target = Annotated[Path | None, typer.Option("-o", "--output", metavar="OUT", help="tokenizer folder to write")]


def bpe(
    sources: Annotated[list[Path], typer.Argument(metavar="IN...", help="segmented .txt lines, or .jsonl documents")],
    output: options.Output,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Train a BPE tokenizer as in the GPT-2 XL recipe (library: tokenizers)."""
    from course_lib.subword.bpe import train_bpe

    settings = options.settings(BpeConfig, "subword.bpe", config, overrides)
    counts = train_bpe(sources, output, settings, show_progress=sys.stderr.isatty())
    print(tr("{entries} entries → {output}", entries=counts["vocabulary"], output=output))


def unigram(
    sources: Inputs = None, output: Target = None, config: options.Config = None, overrides: options.Set = None
) -> None:
    """Train a Unigram or BPE tokenizer with sentencepiece.

    The YAML may name the inputs as `input` and the output folder as `output_dir`; IN... and -o take precedence.
    """
    from course_lib.subword.unigram import train_unigram

    settings = options.settings(UnigramConfig, "subword.unigram", config, overrides)
    named = [settings.input] if isinstance(settings.input, Path) else list(settings.input)
    inputs, target = sources or named, output or settings.output_dir
    if not inputs or target is None:
        raise UsageError("input, output_dir: not set; give IN... and -o OUT, or both keys in the YAML of -c")
    counts = train_unigram(inputs, target, settings)
    sizes = {"entries": counts["vocabulary"], "lines": counts["lines left out"], "output": target}
    if sizes["lines"]:
        print(tr("{entries} entries, {lines} lines over max_sentence_length left out → {output}", **sizes))
    else:
        print(tr("{entries} entries → {output}", entries=counts["vocabulary"], output=target))
