"""Deduplication: exact duplicates by 8-byte hashes, near-duplicate documents by MinHash.

A web corpus has hundreds of millions of lines, so only sorted arrays of 64-bit integers and bytes are stored. The
search for exact duplicates uses 8 bytes per line or document. The search for near-duplicates uses 8 · num_bands +
num_perm + 8 bytes per kept document. By default, that is 712 bytes; rensa's own index uses about 8 kB, because it
holds a growable list per band. A document is compared only with kept documents, not with removed ones. This module does
not compare meanings and does not find repeated parts inside longer documents.

rensa computes the signatures: MinHash over n-grams of `ngram` characters. The text is first folded (grams.py):
character widths are made equal and whitespace is removed.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

from course_lib.corpus.config import DedupConfig
from course_lib.corpus.grams import MIX, MULTIPLIER, Hashes, folded, gram_hashes
from course_lib.errors import CourseError

# Seed for MinHash; another seed takes other samples of the same text.
SEED = 42
# Number of documents compared with each other at once.
SLICE = 128
# An index entry has 64 bits: the lower 28 hold the document's row index, the upper 36 a hash of one band.
NUMBER_BITS = np.uint64(28)
NUMBERS = np.uint64((1 << 28) - 1)
# MinHash values, [documents, num_perm].
Signatures = npt.NDArray[np.uint32]
# The lowest byte of each MinHash value, which is enough to estimate the similarity of documents that share a band.
Bytes = npt.NDArray[np.uint8]


def text_hash(text: str) -> int:
    """Return a 64-bit BLAKE2b hash of a text without its whitespace; duplicates have equal hashes on every machine."""
    digest = hashlib.blake2b("".join(text.split()).encode("utf8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def signatures(texts: Iterable[str], settings: DedupConfig) -> Signatures:
    """Return the MinHash signature of each text, [texts, num_perm]."""
    grams = [gram_hashes(folded(text), settings.ngram) for text in texts]
    if not grams:
        return np.empty((0, settings.num_perm), dtype=np.uint32)
    offsets = np.cumsum([0, *map(len, grams)], dtype=np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(np.concatenate(grams), offsets, settings.num_perm, SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32)


class SortedRuns:
    """A growing set of 64-bit integers, stored in sorted arrays ("runs").

    Each array is at least twice as long as the next one, so there are few of them.
    """

    def __init__(self) -> None:
        self.runs: list[Hashes] = []

    def add(self, numbers: Hashes) -> None:
        """Add a sorted array of integers to the set."""
        if len(numbers):
            self.runs.append(numbers)
        while len(self.runs) > 1 and 2 * len(self.runs[-1]) > len(self.runs[-2]):
            merged = np.concatenate([self.runs.pop(-2), self.runs.pop()])
            # The stable sort merges the two parts, which are already sorted.
            merged.sort(kind="stable")
            self.runs.append(merged)


class Seen:
    """The set of all hashes added so far."""

    def __init__(self) -> None:
        self._known = SortedRuns()

    def first_time(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Add hashes [n] to the set. Return a flag for each hash: true if this is its first occurrence."""
        unique, first = np.unique(hashes, return_index=True)
        new = np.ones(len(unique), dtype=np.bool_)
        for run in self._known.runs:
            positions = np.searchsorted(run, unique)
            new &= run[np.minimum(positions, len(run) - 1)] != unique
        self._known.add(unique[new])
        flags = np.zeros(len(hashes), dtype=np.bool_)
        flags[first[new]] = True
        return flags


class NearDuplicates:
    """An index of the kept documents for finding near-duplicates.

    The candidates for a new document are the kept documents that share a whole band of the signature with it. The new
    document is a near-duplicate if the fraction of signature values that it shares with a candidate is at least
    `similarity`.
    """

    def __init__(self, settings: DedupConfig) -> None:
        self._settings = settings
        # Entries: the hash of a band (upper 36 bits) and the row index of its document in the two arrays below.
        self._index = SortedRuns()
        self._kept = np.empty((0, settings.num_perm), dtype=np.uint8)
        self._numbers = np.empty(0, dtype=np.int64)
        self._length = 0

    def add(self, rows: Signatures, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each document, return the number of the kept document that it duplicates, or -1.

        Documents with -1 are kept, and later documents are compared with them. `rows` holds the signatures, [documents,
        num_perm], and `numbers` the running numbers, [documents].
        """
        parts = [self._add_slice(rows[at : at + SLICE], numbers[at : at + SLICE]) for at in range(0, len(rows), SLICE)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _add_slice(self, rows: Signatures, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        bands, short = self._bands(rows), rows.astype(np.uint8)
        repeats = self._look_up(short, bands)
        keep: list[int] = []
        for at in range(len(rows)):
            if repeats[at] < 0 and keep:
                alike = self._alike(short[keep], short[at])
                if alike.any():
                    repeats[at] = numbers[keep[int(alike.argmax())]]
            if repeats[at] < 0:
                keep.append(at)
        self._store(short[keep], numbers[keep], bands[keep])
        return repeats

    def _look_up(self, rows: Bytes, bands: Hashes) -> npt.NDArray[np.int64]:
        """For each document, return the number of the earliest stored document that it duplicates, or -1."""
        repeats = np.full(len(rows), -1, dtype=np.int64)
        wanted = _entries(bands, 0)
        pairs = np.unique(np.concatenate([wanted[:0], *(_pairs(run, wanted) for run in self._index.runs)]))
        asking = (pairs >> NUMBER_BITS).astype(np.int64)
        stored = (pairs & NUMBERS).astype(np.int64)
        for at in np.unique(asking):
            candidates = stored[asking == at]
            alike = self._alike(self._kept[candidates], rows[at])
            if alike.any():
                repeats[at] = self._numbers[candidates[int(alike.argmax())]]
        return repeats

    def _alike(self, rows: Bytes, one: Bytes) -> npt.NDArray[np.bool_]:
        needed = self._settings.similarity * self._settings.num_perm
        agreeing: npt.NDArray[np.int64] = np.count_nonzero(rows == one, axis=1)
        return agreeing >= needed

    def _bands(self, rows: Signatures) -> Hashes:
        """Return a 36-bit hash of each band, [documents, num_bands]. The lower 28 bits of each integer are zero."""
        bands = rows.reshape(len(rows), self._settings.num_bands, -1)
        hashes = np.broadcast_to(np.arange(1, bands.shape[1] + 1, dtype=np.uint64), bands.shape[:2]).copy()
        for column in range(bands.shape[2]):
            hashes = (hashes ^ bands[:, :, column]) * MULTIPLIER
            hashes ^= hashes >> np.uint64(32)
        return (hashes * MIX) & ~NUMBERS

    def _store(self, rows: Bytes, numbers: npt.NDArray[np.int64], bands: Hashes) -> None:
        end = self._length + len(rows)
        if end > NUMBERS:
            raise CourseError(
                f"near_duplicates: the input has more than {NUMBERS:,} documents, too many for one search; "
                "split the input"
            )
        if end > len(self._kept):
            room = max(end, len(self._kept) * 5 // 4, 4 * SLICE)
            self._kept = np.resize(self._kept, (room, self._kept.shape[1]))
            self._numbers = np.resize(self._numbers, room)
        self._kept[self._length : end] = rows
        self._numbers[self._length : end] = numbers
        self._index.add(_entries(bands, self._length))
        self._length = end


def _entries(bands: Hashes, first: int) -> Hashes:
    """Return the sorted index entries (band hash | row index) for all bands; row indices start at `first`."""
    rows = np.arange(first, first + len(bands), dtype=np.uint64)
    return np.sort((bands | rows[:, None]).ravel())


def _pairs(run: Hashes, wanted: Hashes) -> Hashes:
    """Return the (new row | stored row) pairs of documents that share a band.

    `run` holds sorted (band hash | stored row) entries and `wanted` sorted (band hash | new row) entries.
    """
    hashes = wanted & ~NUMBERS
    low = np.searchsorted(run, hashes)
    hits = np.flatnonzero(run[np.minimum(low, len(run) - 1)] & ~NUMBERS == hashes)
    low = low[hits]
    counts = np.searchsorted(run, hashes[hits] | NUMBERS, side="right") - low
    positions = np.arange(counts.sum()) + np.repeat(low - np.cumsum(counts) + counts, counts)
    pairs: Hashes = (np.repeat(wanted[hits] & NUMBERS, counts) << NUMBER_BITS) | (run[positions] & NUMBERS)
    return pairs
