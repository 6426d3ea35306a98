"""Search for repeats in a corpus of any size: exact ones by 64-bit hashes, near-duplicates by bands of MinHash values.

A repeat is a document (or line) of which an earlier one in the corpus is a duplicate, whether the earlier one is itself
a repeat or not. This definition needs no order of processing, so the search is spread over worker processes and its
result is the same for any number of them. It differs from the clusters of other tools: if A resembles B and B resembles
C, but A does not resemble C, then C stays in the order A, C, B.

The values are columns on disk: one 64-bit number per document, line or band, appended in corpus order. A worker sorts
SLICE numbers at a time, so memory does not grow with the corpus.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from course_lib.corpus.grams import Hashes
from course_lib.parallel import ordered_map
from course_lib.progress import progress
from course_lib.words import mark, tr

# Numbers that a worker sorts at a time; sorting takes about 24 bytes of memory per number.
SLICE = 1 << 24
# Numbers read from a column at a time, and signatures compared at a time.
BLOCK, PAIRS = 1 << 20, 1 << 14
# In a band that many documents share, each is compared with this many of the earliest ones.
ANCHORS = 1000
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
# Path of a column, and the lowest and highest value of a slice of it.
Slice = tuple[Path, int, int]


class SignatureRows(Protocol):
    """The signatures of documents, which an array of positions selects."""

    def __getitem__(self, positions: Positions, /) -> npt.NDArray[np.uint8]:
        """Return the lowest bytes of the MinHash values, [positions, num_perm]."""


def repeats(column: Path, kept: Path | None = None, workers: int = 1, label: str = mark("repeats")) -> Flags:
    """Return which values of a column occur at an earlier position, [positions].

    Args:
        column: file of 64-bit hashes.
        kept: file with one byte per position: 0 leaves the position out of the search. None means that all count.
        workers: number of processes.
        label: what the progress bar says.
    """
    flags = np.zeros(column.stat().st_size // 8, dtype=np.bool_)
    slices = list(_slices(column))
    with progress(len(slices), "slice", tr("searching {label}", label=tr(label))) as bar:
        for positions in ordered_map(partial(_repeats_in, kept), slices, workers):
            flags[positions] = True
            bar.update()
    return flags


def near_repeats(
    bands: Sequence[Path], signatures: Path, num_perm: int, needed: float, kept: Path, workers: int = 1
) -> Positions:
    """Return, for each document, the position of the earliest one that it nearly duplicates, or -1, [documents].

    Candidates are documents that share the hash of a whole band. They are near-duplicates if at least `needed` of their
    signature values are equal.

    Args:
        bands: for each band, a file with the hash of that band for each document.
        signatures: file of MinHash values, of which the lowest byte is stored, [documents, num_perm].
        num_perm: number of MinHash values per document.
        needed: number of equal values from which on documents are near-duplicates.
        kept: file with one byte per document: 0 leaves the document out of the search.
        workers: number of processes.
    """
    earliest = np.full(kept.stat().st_size, -1, dtype=np.int64)
    slices = [part for band in bands for part in _slices(band)]
    compare = partial(_near_in, signatures, num_perm, needed, kept)
    with progress(len(slices), "band", "searching near-duplicates") as bar:
        for later, earlier in ordered_map(compare, slices, workers):
            # A document has one value in a band, so `later` has no position twice.
            known = earliest[later]
            earliest[later] = np.where(known < 0, earlier, np.minimum(known, earlier))
            bar.update()
    return earliest


def _slices(column: Path) -> Iterator[Slice]:
    """Cut the range of 64-bit values into parts with about SLICE values each, since hashes are evenly distributed."""
    parts = max(1, -(-column.stat().st_size // (8 * SLICE)))
    borders = [part * (1 << 64) // parts for part in range(parts + 1)]
    for low, high in pairwise(borders):
        yield column, low, high - 1


def _sorted(part: Slice, kept: Path | None) -> tuple[Hashes, Positions]:
    """Return the values in a slice in ascending order, and their positions; equal values are in corpus order."""
    column, low, high = part
    if not column.stat().st_size:
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    stored = np.memmap(column, dtype=np.uint64, mode="r")
    mask = None if kept is None else np.memmap(kept, dtype=np.bool_, mode="r")
    values, positions = [], []
    for start in range(0, len(stored), BLOCK):
        block = stored[start : start + BLOCK]
        inside = (block >= np.uint64(low)) & (block <= np.uint64(high))
        if mask is not None:
            inside &= mask[start : start + BLOCK]
        at = np.flatnonzero(inside)
        values.append(block[at])
        positions.append(at + start)
    every = np.concatenate(values)
    order = np.argsort(every, kind="stable")
    return every[order], np.concatenate(positions)[order]


def _repeats_in(kept: Path | None, part: Slice) -> Positions:
    return repeated(*_sorted(part, kept))


def repeated(values: Hashes, positions: Positions) -> Positions:
    """Return the positions of the values that occur at an earlier position.

    Args:
        values: hashes in ascending order, [values].
        positions: their positions in the corpus, in ascending order for equal values, [values].
    """
    later: Positions = positions[1:][values[1:] == values[:-1]]
    return later


def _near_in(signatures: Path, num_perm: int, needed: float, kept: Path, part: Slice) -> tuple[Positions, Positions]:
    """Return the positions of near-duplicates in a slice of a band, and of the earliest one for each."""
    values, positions = _sorted(part, kept)
    if len(values) < 2:
        return positions[:0], positions[:0]
    rows = np.memmap(signatures, dtype=np.uint8, mode="r").reshape(-1, num_perm)
    return near_repeated(values, positions, rows, needed)


def near_repeated(
    values: Hashes, positions: Positions, rows: SignatureRows, needed: float
) -> tuple[Positions, Positions]:
    """Return the positions of near-duplicates among documents with equal values of a band, and the earliest for each.

    No position occurs twice in the first array.

    Args:
        values: hashes of one band in ascending order, [documents].
        positions: the documents' positions in the corpus, in ascending order for equal hashes, [documents].
        rows: the documents' signatures, by position.
        needed: number of equal signature values from which on documents are near-duplicates.
    """
    later: list[Positions] = [np.empty(0, dtype=np.int64)]
    earlier = list(later)
    first = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(values) else later[0]
    # For each document: the index of the first one with its value, and its own rank among those.
    start = np.repeat(first, np.diff(first, append=len(values)))
    rank = np.arange(len(values)) - start
    left = np.flatnonzero(rank > 0)
    for anchor in range(ANCHORS):
        if not len(left):
            break
        others = positions[start[left] + anchor]
        alike = _alike(rows, positions[left], others, needed)
        later.append(positions[left[alike]])
        earlier.append(others[alike])
        left = left[~alike & (rank[left] > anchor + 1)]
    return np.concatenate(later), np.concatenate(earlier)


def _alike(rows: SignatureRows, one: Positions, other: Positions, needed: float) -> Flags:
    """Return for each pair of positions whether at least `needed` signature values are equal, [pairs]."""
    flags = np.empty(len(one), dtype=np.bool_)
    for at in range(0, len(one), PAIRS):
        part = slice(at, at + PAIRS)
        flags[part] = np.count_nonzero(rows[one[part]] == rows[other[part]], axis=1) >= needed
    return flags
