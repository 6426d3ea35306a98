"""Tokenizers trained on given texts, and the effect of the vocabulary size on held-out text."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from tokenizers import models

from course_lib.errors import CourseError
from course_lib.japanese import normalize, split_sentences
from course_lib.japanese.pipeline import segment_file
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.progress import progress
from course_lib.subword import folder
from course_lib.subword.bpe import train_bpe
from course_lib.subword.compare import compare
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


def at_most(codecs: Mapping[str, folder.Codec], entries: int, texts: Sequence[str]) -> dict[str, folder.Codec]:
    """Return the tokenizers, of which those with more than `entries` entries are trained anew on the documents."""
    found = {}
    for name, codec in codecs.items():
        if codec.tokenizer.get_vocab_size() > entries:
            unigram = isinstance(codec.tokenizer.model, models.Unigram)
            codec = train_on(texts, _settings(unigram, entries), codec.preparation.segmented)
        found[name] = codec
    return found


def characters_per_token(texts: Sequence[str], sizes: Sequence[int]) -> dict[str, dict[int, float]]:
    """Return {algorithm: {size that the texts support: characters per token on the last tenth of the texts}}."""
    at = len(texts) * 9 // 10
    held_out = [sentence for text in texts[at:] for sentence in split_sentences(normalize(text))]
    algorithms = {tr_noop("BPE, segmented"): True, tr_noop("BPE, raw"): False, tr_noop("Unigram, raw"): False}
    measured: dict[str, dict[int, float]] = {}
    with progress(len(algorithms) * len(sizes), "tokenizer", "training") as bar:
        for (label, segmented), size in product(algorithms.items(), sizes):
            bar.set_postfix_str(tr("{tokenizer}, {size} entries", tokenizer=tr(label), size=size))
            bar.update()
            try:
                codec = train_on(texts[:at], _settings(label.startswith("Unigram"), size), segmented)
            except CourseError as error:
                if not str(error).startswith("vocab_size:"):
                    raise
                continue
            measured.setdefault(label, {})[size] = compare({label: codec}, held_out)[0].characters_per_token
    return measured


def _settings(unigram: bool, size: int) -> BpeConfig | UnigramConfig:
    # Three quarters of the entries for single characters leave room for the byte tokens and for merges.
    return UnigramConfig(vocab_size=size) if unigram else BpeConfig(vocab_size=size, limit_alphabet=size * 3 // 4)
