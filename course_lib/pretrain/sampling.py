"""Which tokens make which training sample: GPT sampling as Megatron's, index for index, so that a run there can be followed here.

Documents are shuffled, read as one stream of tokens, and the stream is cut into samples of seq_length + 1 tokens; the last token of a
sample is the first of the next, so that every token but the first is predicted once. Then the samples are shuffled. Indices equal
megatron-core 0.9 (`GPTDataset`, `build_sample_idx`) exactly. Batches, labels and loss masks are made elsewhere.
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
from course_lib.files import atomic_write, sha256

FORMAT = 1  # of the cached files; a new number leaves the old ones alone
BLOCK = 1 << 20  # documents counted at a time; bounds the memory of sample_index
SEPARATE_BELOW = 0.80  # a last epoch of which less than this share is asked for is shuffled by itself

Array = NDArray[Any]


class Indexed(Protocol):
    """Sequences of tokens by number, such as indexed.IndexedDataset."""

    @property
    def sizes(self) -> Array:
        """Tokens of each sequence, int32."""

    def get(self, i: int, offset: int, length: int) -> Array:
        """`length` tokens of sequence `i` from token `offset` on."""


class Concatenated:
    """Parts of several corpora behind one another as one: each part is (corpus, range of its sequences)."""

    def __init__(self, parts: Sequence[tuple[Indexed, range]]):
        self.parts = parts
        sizes = [corpus.sizes[documents.start : documents.stop] for corpus, documents in parts]
        self.sizes = np.concatenate([np.empty(0, np.int32), *sizes])
        self._ends = list(accumulate(map(len, sizes)))

    def get(self, i: int, offset: int, length: int) -> Array:
        """`length` tokens of sequence `i` from token `offset` on."""
        at = bisect_right(self._ends, i)
        corpus, documents = self.parts[at]
        return corpus.get(documents[i - self._ends[at]], offset, length)  # counted from the end of the part

    def __reduce__(self) -> tuple[Any, ...]:
        return Concatenated, (self.parts,)


def split_documents(split: str, sequences: int) -> tuple[range, range, range]:
    """The sequences for training, validation and test by shares such as "949,50,1" (or with slashes), contiguous in file order.

    Boundaries are round(cumulative share · sequences), as in megatron-core. Megatron-DeepSpeed rounds every share by itself and moves
    all boundaries by what their sum misses: of 10 sequences it trains on 10, core on 9. An empty range means no dataset.
    Raises UsageError naming a value that is not one to three numbers, none negative and not all zero.
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
    ends = [round(end * sequences) for end in accumulate(share / total for share in [*shares, 0.0, 0.0][:3])]
    return range(ends[0]), range(ends[0], ends[1]), range(ends[1], ends[2])


def split_corpora(corpora: Sequence[Indexed], split: str) -> tuple[Concatenated, Concatenated, Concatenated]:
    """Training, validation and test part of several corpora, each of which is split by itself."""
    ranges = [split_documents(split, len(corpus.sizes)) for corpus in corpora]

    def part(which: int) -> Concatenated:
        return Concatenated([(corpus, own[which]) for corpus, own in zip(corpora, ranges, strict=True)])

    return part(0), part(1), part(2)


def epochs_needed(tokens: int, seq_length: int, samples: int | None) -> int:
    """The least number of passes over `tokens` tokens that makes `samples` samples; None asks for one pass."""
    return 1 if samples is None else max(1, -(-(samples * seq_length + 1) // tokens))


def separate_last_epoch(tokens: int, seq_length: int, samples: int | None, epochs: int) -> bool:
    """Whether the last epoch is shuffled by itself, because so little of it is used that its documents would be seen unevenly.

    `tokens` are those of one epoch.
    """
    if samples is None or epochs == 1:
        return False
    of_last = samples - samples_in((epochs - 1) * tokens, seq_length)
    return of_last < int(SEPARATE_BELOW * samples_in(tokens, seq_length))


def samples_in(tokens: int, seq_length: int) -> int:
    """How many samples of seq_length + 1 tokens, overlapping by one, fit into a stream of `tokens` tokens."""
    return (tokens - 1) // seq_length


def document_index(documents: range, epochs: int, separate: bool, random: np.random.RandomState) -> NDArray[np.int32]:
    """The documents in the order they are read: all epochs shuffled together; with `separate`, the last one by itself."""
    once = np.arange(documents.start, documents.stop, dtype=np.int32)
    index = np.tile(once, epochs)
    _shuffle(index, len(once) * (epochs - separate), random)
    return index


def sample_index(sizes: Array, documents: Array, seq_length: int, tokens: int) -> NDArray[np.int64]:
    """Where each sample begins, and the last one ends: rows of (position in `documents`, token offset), one more than samples.

    `documents` is the document index, `tokens` the number of tokens in all of it. Row i marks token i · seq_length of the stream,
    which never lies in a document without tokens; only row 0 is (0, 0) whatever the first document holds.
    """
    rows = np.zeros((samples_in(tokens, seq_length) + 1, 2), np.int64)
    row, start = 1, 0  # the row to be found next; tokens before the block
    for at in range(0, len(documents), BLOCK):
        ends = start + np.cumsum(sizes[documents[at : at + BLOCK]], dtype=np.int64)
        starts = np.concatenate(([start], ends[:-1]))
        start = int(ends[-1])
        stop = max(row, -(-start // seq_length))
        wanted = np.arange(row, stop) * seq_length
        found = np.searchsorted(ends, wanted, side="right")
        rows[row:stop, 0] = at + found
        rows[row:stop, 1] = wanted - starts[found]
        row = stop
    return rows


def shuffle_index(first: int, samples: int, random: np.random.RandomState) -> Array:
    """A permutation of `samples` samples that keeps the first `first` (all, without a separate last epoch) and the rest apart."""
    index = np.arange(samples, dtype=np.uint32 if samples < np.iinfo(np.uint32).max - 1 else np.int64)
    _shuffle(index, first, random)
    return index


def _shuffle(index: Array, first: int, random: np.random.RandomState) -> None:
    random.shuffle(index[:first])
    random.shuffle(index[first:])  # of nothing: draws nothing


class Indices(NamedTuple):
    """What a GptDataset looks a sample up by."""

    documents: Array
    samples: Array
    shuffle: Array


class GptDataset:
    """Samples of seq_length + 1 token ids drawn from some documents: dataset[i] is an int64 array, len(dataset) their number.

    There are at least `samples` of them (None: those of one epoch). The indices are kept in the folder `cache`, if given: one process
    builds, others wait and map the same files into memory. A pickled copy (DataLoader workers) finds its indices again by itself.
    """

    def __init__(
        self,
        indexed: Indexed,
        documents: range,
        seq_length: int,
        samples: int | None,
        seed: int,
        cache: Path | None = None,
    ):
        """Raises CourseError if the documents hold fewer tokens than one sample."""
        self._arguments = (indexed, documents, seq_length, samples, seed, cache)
        self.indexed, self.seq_length = indexed, seq_length
        sizes = self._sizes = np.asarray(indexed.sizes)
        own = np.ascontiguousarray(sizes[documents.start : documents.stop], np.int32)
        self.tokens = int(own.sum(dtype=np.int64))  # of one epoch
        if self.tokens <= seq_length:
            raise CourseError(
                f"{self.tokens} tokens in {len(documents)} documents are fewer than one sample of data.seq_length + 1 = {seq_length + 1}"
                " tokens: give more text, a larger share in data.split, or a shorter data.seq_length"
            )
        self.epochs = epochs_needed(self.tokens, seq_length, samples)
        self.separate = separate_last_epoch(self.tokens, seq_length, samples, self.epochs)

        def build() -> Indices:
            random = np.random.RandomState(seed)
            order = document_index(documents, self.epochs, self.separate, random)
            rows = sample_index(sizes, order, seq_length, self.epochs * self.tokens)
            first = samples_in((self.epochs - self.separate) * self.tokens, seq_length)
            return Indices(order, rows, shuffle_index(first, len(rows) - 1, random))

        self.indices = build() if cache is None else _cached(cache, self._key(own, documents, seed), build)

    def _key(self, sizes: Array, documents: range, seed: int) -> str:
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


def _cached(folder: Path, key: str, build: Callable[[], Indices]) -> Indices:
    """The indices mapped from files in `folder`; where those are missing or damaged, built and written there first."""
    paths = [folder / f"{key}-{name}.npy" for name in Indices._fields]
    sums = folder / f"{key}.sha256"  # written last; `sha256sum -c` reads it too

    def checksums() -> bytes:
        return "".join(f"{sha256(path)}  {path.name}\n" for path in paths).encode()

    def whole() -> bool:
        try:
            return sums.read_bytes() == checksums()
        except OSError:
            return False

    if not whole():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{key}.lock"):  # one rank builds, the others wait
            if not whole():
                for left in folder.glob(f".{key}*.tmp"):  # from a killed run
                    left.unlink()
                for path, array in zip(paths, build(), strict=True):
                    with atomic_write(path) as file:
                        np.save(file, array, allow_pickle=False)
                with atomic_write(sums) as file:
                    file.write(checksums())
    return Indices(*(np.asarray(np.load(path, mmap_mode="r")) for path in paths))
