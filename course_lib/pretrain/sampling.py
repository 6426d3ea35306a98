"""Selection of the tokens for each training sample, with the same indices as Megatron, so that runs are comparable.

The documents are shuffled and read as one token stream, which is cut into samples of seq_length + 1 tokens. The last
token of a sample is the first of the next, so that every token except the first is predicted once. Finally, the samples
are shuffled. The indices equal those of megatron-core 0.9 (`GPTDataset`, `build_sample_idx`).
"""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write
from course_lib.language.words import tr, tr_noop
from course_lib.training.run import ENDLESS

FORMAT = 1  # version of the cache files; a new version does not reuse old files
BLOCK = 1 << 20  # documents processed at a time, which limits the memory use of sample_index
SEPARATE_BELOW = 0.80  # if less than this share of the last epoch is used, the last epoch is shuffled separately

Array = NDArray[Any]


class Indexed(Protocol):
    """Interface for indexed token sequences, such as indexed.IndexedDataset."""

    @property
    def sizes(self) -> Array:
        """Number of tokens in each sequence, int32 [sequences]."""

    def get(self, i: int, offset: int, length: int) -> Array:
        """Return `length` tokens of sequence `i`, starting at token `offset`."""


class Concatenated:
    """Concatenation of parts of several corpora; each part is a tuple (corpus, range of sequences)."""

    def __init__(self, parts: Sequence[tuple[Indexed, range]]):
        self.parts = parts
        sizes = [corpus.sizes[documents.start : documents.stop] for corpus, documents in parts]
        self.sizes = np.concatenate([np.empty(0, np.int32), *sizes])
        self._ends = list(accumulate(map(len, sizes)))

    def get(self, i: int, offset: int, length: int) -> Array:
        """Return `length` tokens of sequence `i`, starting at token `offset`."""
        at = bisect_right(self._ends, i)
        corpus, documents = self.parts[at]
        # The index is negative, because it counts from the end of the part.
        return corpus.get(documents[i - self._ends[at]], offset, length)

    def __reduce__(self) -> tuple[Any, ...]:
        return Concatenated, (self.parts,)


def split_documents(split: str, sequences: int) -> tuple[range, range, range]:
    """Return the contiguous ranges of sequences for training, validation and test, in file order.

    `split` contains one to three shares separated by commas or slashes, such as "949,50,1". The boundaries are
    round(cumulative share · sequences), as in megatron-core. Megatron-DeepSpeed rounds each share instead: with the
    default shares and 10 sequences, it trains on 10 of them and megatron-core on 9.
    """
    try:
        shares = [float(share) for share in split.replace("/", ",").split(",")]
        *_, total = accumulate(shares)
        if len(shares) > 3 or min(shares) < 0 or not 0 < total < math.inf:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"data.split: {split!r} is not allowed: one to three shares (train, validation, test) such as 949,50,1"
        ) from None
    three = [*shares, 0.0, 0.0][:3]
    cumulative = accumulate(share / total for share in three)
    ends = [round(share * sequences) for share in cumulative]
    return range(ends[0]), range(ends[0], ends[1]), range(ends[1], ends[2])


def split_corpora(corpora: Sequence[Indexed], split: str) -> tuple[Concatenated, Concatenated, Concatenated]:
    """Return the training, validation and test parts of several corpora, splitting each corpus separately."""
    ranges = [split_documents(split, len(corpus.sizes)) for corpus in corpora]

    def part(which: int) -> Concatenated:
        return Concatenated([(corpus, documents[which]) for corpus, documents in zip(corpora, ranges, strict=True)])

    return part(0), part(1), part(2)


def epochs_needed(tokens: int, seq_length: int, samples: int | None) -> int:
    """Return how many epochs of `tokens` tokens are needed for `samples` samples, or 1 if `samples` is None."""
    return 1 if samples is None else max(1, -(-(samples * seq_length + 1) // tokens))


def separate_last_epoch(tokens: int, seq_length: int, samples: int | None, epochs: int) -> bool:
    """Return whether the last epoch is shuffled separately: if less than the share SEPARATE_BELOW of it is used."""
    if samples is None or epochs == 1:
        return False
    of_last = samples - samples_in((epochs - 1) * tokens, seq_length)
    return of_last < int(SEPARATE_BELOW * samples_in(tokens, seq_length))


def samples_in(tokens: int, seq_length: int) -> int:
    """Return the number of samples of seq_length + 1 tokens, overlapping by one, in a stream of `tokens` tokens."""
    return (tokens - 1) // seq_length


def document_index(documents: range, epochs: int, separate: bool, random: np.random.RandomState) -> NDArray[np.int32]:
    """Return the shuffled documents of all epochs; if `separate` is true, the last epoch is shuffled separately."""
    once = np.arange(documents.start, documents.stop, dtype=np.int32)
    index = np.tile(once, epochs)
    _shuffle(index, len(once) * (epochs - separate), random)
    return index


def sample_index(sizes: Array, documents: Array, seq_length: int, tokens: int) -> NDArray[np.int64]:
    """Return the start of each sample and the end of the last one, as an array [samples + 1, 2].

    Row i is the position of token i · seq_length in the stream, given as (position in `documents`, token offset). Only
    row 0, which is always (0, 0), can point to a document without tokens. `sizes` are the tokens of each sequence,
    `documents` is the document index, and `tokens` the number of its tokens.
    """
    rows = np.zeros((samples_in(tokens, seq_length) + 1, 2), np.int64)
    # `row` is the next row to compute; `start` is the number of tokens before the block.
    row, start = 1, 0
    for at in range(0, len(documents), BLOCK):
        ends = start + np.cumsum(sizes[documents[at : at + BLOCK]], dtype=np.int64)
        starts = np.concatenate(([start], ends[:-1]))
        start = int(ends[-1])
        stop = max(row, -(-start // seq_length))
        wanted = np.arange(row, stop) * seq_length
        positions = np.searchsorted(ends, wanted, side="right")
        rows[row:stop, 0] = at + positions
        rows[row:stop, 1] = wanted - starts[positions]
        row = stop
    return rows


def shuffle_index(first: int, samples: int, random: np.random.RandomState) -> Array:
    """Return a permutation of `samples` samples that shuffles the first `first` samples and the rest separately."""
    index = np.arange(samples, dtype=np.uint32 if samples < np.iinfo(np.uint32).max - 1 else np.int64)
    _shuffle(index, first, random)
    return index


def _shuffle(index: Array, first: int, random: np.random.RandomState) -> None:
    """Shuffle the first `first` elements and the rest separately, in place."""
    random.shuffle(index[:first])
    # If the rest is empty, shuffling it draws no random numbers.
    random.shuffle(index[first:])


class Indices(NamedTuple):
    """The document, sample and shuffle indices of a GptDataset."""

    documents: Array
    samples: Array
    shuffle: Array


class GptDataset:
    """A dataset of samples: dataset[i] is an int64 array [seq_length + 1]; pickled, it is its arguments."""

    def __init__(
        self,
        indexed: Indexed,
        documents: range,
        seq_length: int,
        samples: int | None,
        seed: int,
        cache: Path | None = None,
    ):
        """Build the indices of at least `samples` samples (None: one epoch), which processes share in `cache`."""
        self._arguments = (indexed, documents, seq_length, samples, seed, cache)
        self.indexed, self.seq_length = indexed, seq_length
        sizes = self._sizes = np.asarray(indexed.sizes)
        chosen_sizes = np.ascontiguousarray(sizes[documents.start : documents.stop], np.int32)
        self.tokens = int(chosen_sizes.sum(dtype=np.int64))  # tokens per epoch
        if self.tokens <= seq_length:
            message = tr_noop("{tokens} tokens are fewer than data.seq_length + 1 = {needed}; give more text")
            raise CourseError(tr(message, tokens=self.tokens, needed=seq_length + 1))
        self.epochs = epochs_needed(self.tokens, seq_length, samples)
        self.separate = separate_last_epoch(self.tokens, seq_length, samples, self.epochs)

        def build() -> Indices:
            random = np.random.RandomState(seed)
            order = document_index(documents, self.epochs, self.separate, random)
            rows = sample_index(sizes, order, seq_length, self.epochs * self.tokens)
            first = samples_in((self.epochs - self.separate) * self.tokens, seq_length)
            return Indices(order, rows, shuffle_index(first, len(rows) - 1, random))

        if cache is None:
            self.indices = build()
        else:
            self.indices = _cached(cache, self._key(chosen_sizes, documents, seed), build)

    def _key(self, sizes: Array, documents: range, seed: int) -> str:
        """Return the name stem for the cache files: a hash of everything that determines the indices."""
        facts = (FORMAT, documents, self.seq_length, self.epochs, self.separate, seed)
        digest = hashlib.sha256(repr(facts).encode())
        digest.update(sizes.data)
        return digest.hexdigest()[:32]

    def __len__(self) -> int:
        return len(self.indices.shuffle)

    def __getitem__(self, at: int) -> NDArray[np.int64]:
        position, offset = self.indices.samples[self.indices.shuffle[at]].tolist()
        sample = np.empty(self.seq_length + 1, np.int64)
        filled = 0
        while filled < len(sample):
            document = int(self.indices.documents[position])
            length = min(int(self._sizes[document]) - offset, len(sample) - filled)
            sample[filled : filled + length] = self.indexed.get(document, offset, length)
            position, offset, filled = position + 1, 0, filled + length
        return sample

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


class Epochs:
    """The samples of a corpus, epoch after epoch without end, for a run whose length is a time.

    The order of a GptDataset depends on its number of samples. Here each epoch is another GptDataset, whose seed is
    the sum of the run's seed and the number of the epoch.
    """

    def __init__(self, indexed: Indexed, documents: range, seq_length: int, seed: int, cache: Path | None = None):
        """Build the indices of the first epoch."""
        self._arguments = (indexed, documents, seq_length, seed, cache)
        self._number, self._epoch = 0, self._build(0)

    def _build(self, number: int) -> GptDataset:
        indexed, documents, seq_length, seed, cache = self._arguments
        return GptDataset(indexed, documents, seq_length, None, (seed + number) % (1 << 32), cache)

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, at: int) -> NDArray[np.int64]:
        # All epochs have the same number of samples.
        number, index = divmod(at, len(self._epoch))
        if number != self._number:
            self._number, self._epoch = number, self._build(number)
        return self._epoch[index]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


def _cached(folder: Path, key: str, build: Callable[[], Indices]) -> Indices:
    """Return the indices, memory-mapped from files in `folder`, which are built first if they are missing."""
    paths = [folder / f"{key}-{name}.npy" for name in Indices._fields]
    folder.mkdir(parents=True, exist_ok=True)
    # One rank builds the indices while the others wait.
    with FileLock(folder / f".{key}.lock"):
        if not all(path.is_file() for path in paths):
            for path, array in zip(paths, build(), strict=True):
                with atomic_write(path) as file:
                    np.save(file, array, allow_pickle=False)
    return Indices(*(np.asarray(np.load(path, mmap_mode="r")) for path in paths))
