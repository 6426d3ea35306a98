"""Tokenizers trained on given texts: what a notebook or an exercise trains in seconds."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from course_lib.japanese.pipeline import segment_file
from course_lib.subword import folder
from course_lib.subword.bpe import train_bpe
from course_lib.subword.config import BpeConfig, UnigramConfig
from course_lib.subword.unigram import train_unigram


def train_on(texts: Sequence[str], settings: BpeConfig | UnigramConfig, segmented: bool) -> folder.Codec:
    """Train a tokenizer on documents, which are segmented first if `segmented` is true, and return it."""
    with TemporaryDirectory() as name:
        source, target = Path(name, "texts.jsonl"), Path(name, "tokenizer")
        source.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts))
        if segmented:
            segment_file(source, Path(name, "lines.txt"))
            source = Path(name, "lines.txt")
        if isinstance(settings, BpeConfig):
            train_bpe([source], target, settings, show_progress=False)
        else:
            train_unigram([source], target, settings)
        return folder.load(target)
