"""Token file checks, datasets and step counts for a pretraining run.

indexed.py reads the files; sampling.py creates the samples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256 as sha256_of
from pathlib import Path

import numpy as np
import orjson

from course_lib.errors import CourseError, UsageError
from course_lib.files import sha256
from course_lib.pretrain.config import DataConfig, PretrainConfig
from course_lib.pretrain.indexed import IndexedDataset, files_of
from course_lib.pretrain.sampling import Array, Concatenated, GptDataset, Indexed, split_corpora
from course_lib.training.settings import ResolvedBatch

LOOKED_AT = 1 << 20  # number of tokens that are checked and hashed at each end of a file


@dataclass(frozen=True)
class Splits:
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
        # Check only the ends: reading a whole file can take minutes, and ids from the wrong tokenizer show up there
        ends = np.concatenate([corpus.tokens[:LOOKED_AT], corpus.tokens[-LOOKED_AT:]])
        if ends.min() < 0:
            raise CourseError(f"{prefix}: holds token {ends.min()}; allowed: 0 and above")
        if ends.max() >= vocab_size:
            raise CourseError(
                f"{prefix}: holds token {ends.max()}, but model.vocab_size is {vocab_size}; "
                "allowed: a model.vocab_size of at least the tokenizer's number of entries"
            )
    return Splits(*split_corpora(corpora, data.split))


def spread(corpus: Indexed, tokens: int) -> list[Array]:
    """Return evenly spaced sequences of a corpus with about `tokens` tokens in all; all of them if it has no more.

    A sequence of more than `tokens` tokens is cut.
    """
    step = max(-(-int(corpus.sizes.sum(dtype=np.int64)) // tokens), 1)
    return [corpus.get(i, 0, min(int(corpus.sizes[i]), tokens)) for i in range(0, len(corpus.sizes), step)]


def special_ids(tokenizer: Path) -> tuple[int, int]:
    """Return the ids of the bos_token and eos_token named in the folder's tokenizer_config.json."""
    vocabulary, names = _tokenizer(tokenizer)
    return vocabulary[names["bos_token"]], vocabulary[names["eos_token"]]


def _tokenizer(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Return the vocabulary (entry → id) and the parsed tokenizer_config.json from a tokenizer folder."""
    from tokenizers import Tokenizer

    try:
        names = orjson.loads((folder / "tokenizer_config.json").read_bytes())
        vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
        missing = [name for name in ("bos_token", "eos_token") if names.get(name) not in vocabulary]
    # The `tokenizers` library raises plain Exception.
    except Exception as error:
        raise CourseError(f"{folder}: not a tokenizer folder: {error}") from error
    if missing:
        raise CourseError(
            f"{folder}: its tokenizer_config.json names no {missing[0]} of its vocabulary"
            if len(missing) == 1
            else f"{folder}: its tokenizer_config.json names no {missing[0]} and no {missing[1]} of its vocabulary"
        )
    return vocabulary, names


def check_vocabulary(settings: PretrainConfig) -> None:
    """Raise UsageError if the tokenizer has more entries than model.vocab_size."""
    assert settings.data.tokenizer
    entries = len(_tokenizer(settings.data.tokenizer)[0])
    if entries > settings.model.vocab_size:
        raise UsageError(
            f"model.vocab_size: {settings.model.vocab_size} is not allowed: "
            f"the tokenizer {settings.data.tokenizer} has {entries} entries"
        )


def training_steps(settings: PretrainConfig, batch: ResolvedBatch, tokens: int) -> int:
    """Return the number of optimizer steps in a run: max_steps, or the complete steps in train_tokens or the epochs.

    `tokens` is the number of training tokens in one epoch.
    """
    engine, length = settings.engine, settings.data.seq_length
    if tokens <= length:
        raise CourseError(
            f"the training part has {tokens} tokens, fewer than one sample of data.seq_length + 1 = {length + 1}; "
            f"give more text, or a larger first share in data.split ({settings.data.split})"
        )
    if engine.max_steps is not None:
        return engine.max_steps
    wanted = settings.data.train_tokens or math.floor((engine.num_train_epochs or 1) * tokens) - 1
    steps = wanted // (batch.total * length)
    if steps < 1:
        raise CourseError(
            f"{max(wanted, 0)} tokens of training are less than one step of {batch.total} samples · {length} tokens; "
            "give more text or epochs, or a smaller batch.global_size"
        )
    return steps


def train_set(settings: PretrainConfig, splits: Splits, samples: int) -> GptDataset:
    """Return a dataset of at least `samples` shuffled training samples, with as many epochs as needed."""
    return _samples(settings, splits.train, samples)


def held_out_set(settings: PretrainConfig, part: Concatenated) -> GptDataset | None:
    """Return one epoch of samples from the validation or test part, or None if the part is shorter than a sample."""
    if part.sizes.sum(dtype=np.int64) <= settings.data.seq_length:
        return None
    return _samples(settings, part, None)


def _samples(settings: PretrainConfig, part: Concatenated, samples: int | None) -> GptDataset:
    """Return a dataset of all sequences in a part; indices are cached in data.cache or, if unset, in the run folder."""
    cache = settings.data.cache or settings.engine.output_dir / "index-cache"
    return GptDataset(part, range(len(part.sizes)), settings.data.seq_length, samples, settings.engine.seed, cache)


def fingerprint(inputs: Sequence[Path]) -> dict[str, dict[str, object]]:
    """Return counts and checksums for the token files, keyed by file name, to be stored in a run's data.json.

    To save time, only the first and last LOOKED_AT tokens of each .bin file are hashed. Each index is hashed in full.
    """
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
