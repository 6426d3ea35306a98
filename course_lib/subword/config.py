"""Settings of chapter 3. One class for each trainer, and what both share."""

from pathlib import Path
from typing import Literal

from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting

UNKNOWN, BEGIN, END = SPECIALS = (
    "<unk>",
    "<s>",
    "</s>",
)  # ids 0, 1, 2 in every tokenizer of the course; </s> also pads


@dataclass(frozen=True, config=STRICT)
class BpeConfig:
    """BPE by `tokenizers`, as the GPT-2 XL recipe trains it: Whitespace pre-tokenizer, specials first."""

    vocab_size: int = setting(50_000, "entries, specials and byte tokens included", ge=3, le=2_000_000)
    min_frequency: int = setting(1, "occurrences a pair needs to be merged", ge=1, le=10**9)
    limit_alphabet: int = setting(8_000, "single characters kept, most frequent first", ge=1, le=0x110000)
    lossless: bool = setting(
        True, "decode to the text before segmentation; false is the recipe, which decodes to words and spaces"
    )
    byte_fallback: bool = setting(True, "write characters outside the alphabet as bytes (256 entries) instead of <unk>")


@dataclass(frozen=True, config=STRICT)
class UnigramConfig:
    """Unigram or BPE by `sentencepiece`."""

    input: Path | tuple[Path, ...] = setting(
        (), "JSONL documents or segmented .txt lines; the command line's files come first"
    )
    output_dir: Path | None = setting(None, "folder of the product; -o comes first")
    model_type: Literal["unigram", "bpe"] = setting("unigram", "the algorithm")
    vocab_size: int = setting(32_000, "entries, specials and byte tokens included", ge=3, le=2_000_000)
    character_coverage: float = setting(0.9995, "share of the corpus's characters that get an entry", ge=0.98, le=1)
    byte_fallback: bool = setting(True, "write other characters as bytes (256 entries) instead of <unk>")
    max_sentence_length: int = setting(16_384, "longer lines are left out of training [bytes]", ge=10, le=10**9)
    input_sentence_size: int = setting(
        0, "train on a random sample of so many lines, always the same one; 0 = all", ge=0, le=10**9
    )
    threads: int = setting(
        2, "threads of the trainer; the last digits of the scores depend on their number", ge=1, le=1024
    )
