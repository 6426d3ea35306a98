"""Token file checks, datasets and step counts for a pretraining run."""

import math
from collections.abc import Sequence
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import NamedTuple

import numpy as np

from course_lib.checkpoints import text_tokenizer
from course_lib.errors import CourseError, UsageError
from course_lib.files import sha256
from course_lib.language.words import tr
from course_lib.pretrain.best_fit import PackedDocuments
from course_lib.pretrain.config import DataConfig, PretrainConfig
from course_lib.pretrain.indexed import IndexedDataset, files_of
from course_lib.pretrain.sampling import Array, Concatenated, Epochs, GptDataset, Indexed, split_corpora
from course_lib.training.run import ENDLESS
from course_lib.training.settings import ResolvedBatch

LOOKED_AT = 1 << 20  # number of tokens that are checked and hashed at each end of a file


class Splits(NamedTuple):
    """The training, validation and test sequences."""

    train: Concatenated
    validation: Concatenated
    test: Concatenated

    @property
    def train_tokens(self) -> int:
        """Number of training tokens in one epoch."""
        return int(self.train.sizes.sum(dtype=np.int64))


def open_splits(data: DataConfig, vocab_size: int) -> Splits:
    """Open the token files and split each into training, validation and test sequences."""
    corpora = [IndexedDataset(prefix) for prefix in data.input]
    for prefix, corpus in zip(data.input, corpora, strict=True):
        if not len(corpus):
            raise CourseError(f"{prefix}: holds no tokens; make some with `course tokenize`")
        # Check only the ends: reading a whole file can take minutes, and ids from the wrong tokenizer show up there.
        ends = np.concatenate([corpus.tokens[:LOOKED_AT], corpus.tokens[-LOOKED_AT:]])
        if ends.max() >= vocab_size:
            raise CourseError(
                f"{prefix}: holds token {ends.max()}, but model.vocab_size is {vocab_size}, which must be more"
            )
    return Splits(*split_corpora(corpora, data.split))


def spread(corpus: Indexed, tokens: int) -> list[Array]:
    """Return evenly spaced sequences of a corpus, each cut to `tokens` tokens, with about as many in all."""
    step = max(-(-int(corpus.sizes.sum(dtype=np.int64)) // tokens), 1)
    return [corpus.get(i, 0, min(int(corpus.sizes[i]), tokens)) for i in range(0, len(corpus.sizes), step)]


def special_ids(settings: PretrainConfig) -> tuple[int, int]:
    """Return the ids of the tokenizer's bos_token and eos_token. Raises CourseError if the model has too few rows."""
    path = settings.data.tokenizer
    assert path
    tokenizer = text_tokenizer.load(path)
    begin, end = (tokenizer.special_ids[key] for key in ("bos_token", "eos_token"))
    if begin is None or end is None:
        raise CourseError(f"{path}: its tokenizer_config.json names no bos_token or no eos_token of its vocabulary")
    if (entries := len(tokenizer.vocabulary)) > settings.model.vocab_size:
        raise UsageError(
            f"model.vocab_size: {settings.model.vocab_size} is not allowed: the tokenizer {path} has {entries} entries"
        )
    return begin, end


def sample_tokens(data: DataConfig, part: Concatenated) -> int:
    """Return the tokens of a sample; with best-fit packing, the mean of an epoch, rounded."""
    if data.packing == "stream" or not len(part.sizes):
        return data.seq_length
    packed = PackedDocuments(part, data.seq_length, None, 0, 0)
    return max(1, round(int(part.sizes.sum(dtype=np.int64)) / len(packed)))


def training_steps(settings: PretrainConfig, batch: ResolvedBatch, part: Concatenated) -> int | None:
    """Return the optimizer steps of a run on the training part: max_steps, or those of its length.

    Return None if the length is a time.
    """
    engine, chosen = settings.engine, settings.data
    tokens = int(part.sizes.sum(dtype=np.int64))
    if tokens <= (chosen.seq_length if chosen.packing == "stream" else 0):
        raise CourseError(
            tr("the training part has {tokens} tokens, fewer than one sample of data.seq_length + 1 = {needed}; "
               "give more text, or a larger first share in data.split ({split})",
               tokens=tokens, needed=chosen.seq_length + 1, split=chosen.split)
        )  # fmt: skip
    if engine.max_steps is not None or engine.max_seconds is not None:
        return engine.max_steps
    epochs = engine.num_train_epochs or 1
    if chosen.packing == "best-fit" and not chosen.train_tokens:
        packed = PackedDocuments(part, chosen.seq_length, None, engine.seed, 0)
        wanted, length = math.floor(epochs * tokens), round(tokens / len(packed))
        steps = packed.samples_in(epochs) // batch.total
    else:
        length = sample_tokens(chosen, part)
        wanted = chosen.train_tokens or math.floor(epochs * tokens) - 1
        steps = wanted // (batch.total * length)
    if steps < 1:
        raise CourseError(
            tr("{tokens} tokens of training are less than one step of {samples} samples · {length} tokens; "
               "give more text or epochs, or a smaller batch.global_size",
               tokens=max(wanted, 0), samples=batch.total, length=length)
        )  # fmt: skip
    return steps


def dataset(
    settings: PretrainConfig, part: Concatenated, samples: int | None = None
) -> GptDataset | Epochs | PackedDocuments | None:
    """Return at least `samples` shuffled samples of a part (None: one epoch); None if it is shorter than a sample."""
    if settings.data.packing == "best-fit":
        length, seed = settings.data.seq_length, settings.engine.seed
        return PackedDocuments(part, length, samples, seed, special_ids(settings)[1]) if len(part.sizes) else None
    if part.sizes.sum(dtype=np.int64) <= settings.data.seq_length:
        return None
    cache = settings.data.cache or settings.engine.output_dir / "index-cache"
    documents, length, seed = range(len(part.sizes)), settings.data.seq_length, settings.engine.seed
    if samples == ENDLESS:
        return Epochs(part, documents, length, seed, cache)
    return GptDataset(part, documents, length, samples, seed, cache)


def fingerprint(inputs: Sequence[Path]) -> dict[str, dict[str, object]]:
    """Return counts and checksums for data.json by file name; of a .bin file, LOOKED_AT tokens at each end count."""
    fingerprints = {}
    for prefix in inputs:
        corpus = IndexedDataset(prefix)
        ends = corpus.tokens[:LOOKED_AT].tobytes() + corpus.tokens[-LOOKED_AT:].tobytes()
        fingerprints[prefix.name] = {
            "documents": len(corpus.documents) - 1,
            "tokens": int(corpus.sizes.sum(dtype=np.int64)),
            "sha256 of the index": sha256(files_of(prefix)[1]),
            "sha256 of the ends": sha256_of(ends).hexdigest(),
        }
    return fingerprints
