"""Finding what came before: exact repeats by 8-byte hashes, near repeats of documents by MinHash.

Both keep sorted arrays of 64-bit numbers and nothing else, because a web corpus has hundreds of millions of lines:
8 bytes a line or document for exact repeats; 8 · num_bands + num_perm + 8 bytes a document kept for near ones (712 by
default, against about 8 kB in rensa's own index, which holds a growable list per band). A repeat of a document that was
itself removed as a repeat is judged against what was kept. Nothing here compares meanings, or finds a repeated part of a
longer document.

The signatures come from rensa: MinHash over runs of `ngram` characters of the text with widths made equal and without
white space (grams.py).
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

from course_lib.corpus.config import DedupConfig
from course_lib.corpus.grams import MIX, MULTIPLIER, Hashes, folded, gram_hashes
from course_lib.errors import CourseError

SEED = 42  # of the MinHash; another one takes other samples of the same text
SLICE = 128  # documents compared with each other at once
NUMBER_BITS = np.uint64(28)  # of an index entry: the document; the 36 above it: a hash of one band
NUMBERS = np.uint64((1 << 28) - 1)
Signatures = npt.NDArray[np.uint32]  # one row of MinHash values a document
Bytes = npt.NDArray[np.uint8]  # the lowest byte of each value: enough to estimate similarity once a band agrees


def text_hash(text: str) -> int:
    """64 bits of BLAKE2b of a text without its white space; equal for repeats, the same on every machine."""
    digest = hashlib.blake2b("".join(text.split()).encode("utf8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def signatures(texts: Iterable[str], settings: DedupConfig) -> Signatures:
    """The MinHash signature of each text."""
    grams = [gram_hashes(folded(text), settings.ngram) for text in texts]
    if not grams:
        return np.empty((0, settings.num_perm), dtype=np.uint32)
    offsets = np.cumsum([0, *map(len, grams)], dtype=np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(np.concatenate(grams), offsets, settings.num_perm, SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32)


class SortedRuns:
    """A growing set of 64-bit numbers as a few sorted arrays, each at least twice the next: 8 bytes a number."""

    def __init__(self) -> None:
        self.runs: list[Hashes] = []

    def add(self, numbers: Hashes) -> None:
        """Takes in sorted numbers."""
        if len(numbers):
            self.runs.append(numbers)
        while len(self.runs) > 1 and 2 * len(self.runs[-1]) > len(self.runs[-2]):
            merged = np.concatenate([self.runs.pop(-2), self.runs.pop()])
            merged.sort(kind="stable")  # which merges what is sorted in parts
            self.runs.append(merged)


class Seen:
    """Which hashes came before."""

    def __init__(self) -> None:
        self._known = SortedRuns()

    def first_time(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Notes the hashes; true where one was never given before, neither earlier in this array."""
        unique, first = np.unique(hashes, return_index=True)
        new = np.ones(len(unique), dtype=np.bool_)
        for run in self._known.runs:
            places = np.searchsorted(run, unique)
            new &= run[np.minimum(places, len(run) - 1)] != unique
        self._known.add(unique[new])
        flags = np.zeros(len(hashes), dtype=np.bool_)
        flags[first[new]] = True
        return flags


class NearDuplicates:
    """Which documents are much like one that was kept before.

    Documents that share a whole band of their signatures are candidates; of those, the ones whose signatures agree in at
    least `similarity` of the places are repeats.
    """

    def __init__(self, settings: DedupConfig) -> None:
        self._settings = settings
        self._index = SortedRuns()  # entries: hash of a band | row in the two arrays below
        self._kept = np.empty((0, settings.num_perm), dtype=np.uint8)
        self._numbers = np.empty(0, dtype=np.int64)
        self._length = 0

    def add(self, rows: Signatures, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each document in order: the number of a kept document it repeats, or -1, and then it is kept."""
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
        """For each row the number of the earliest stored document that it repeats, or -1."""
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
        """A hash of every band in the upper 36 bits, one row a document."""
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
                f"more than {NUMBERS:,} documents are too many for one search of near duplicates; split the input"
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
    """(band hash | row) of every band, sorted; the rows are numbered from `first`."""
    rows = np.arange(first, first + len(bands), dtype=np.uint64)
    return np.sort((bands | rows[:, None]).ravel())


def _pairs(run: Hashes, wanted: Hashes) -> Hashes:
    """(asking row | stored row) for each entry of a sorted run that holds a band hash of the sorted `wanted` (hash | row)."""
    hashes = wanted & ~NUMBERS
    low = np.searchsorted(run, hashes)
    hits = np.flatnonzero(run[np.minimum(low, len(run) - 1)] & ~NUMBERS == hashes)
    low = low[hits]
    counts = np.searchsorted(run, hashes[hits] | NUMBERS, side="right") - low
    places = np.arange(counts.sum()) + np.repeat(low - np.cumsum(counts) + counts, counts)
    pairs: Hashes = (np.repeat(wanted[hits] & NUMBERS, counts) << NUMBER_BITS) | (run[places] & NUMBERS)
    return pairs
