"""Search for repeats in a corpus of any size: exact ones by 64-bit hashes, near-duplicates by bands of MinHash values.

A repeat is a document (or line) of which an earlier one in the corpus is a duplicate, whether the earlier one is itself
a repeat or not. So the result does not depend on the number of worker processes. Unlike with the clusters of other
tools, if A resembles B and B resembles C, but A does not resemble C, then C stays in the order A, C, B.

The values are columns on disk: one 64-bit number per document, line or band, appended in corpus order. A worker sorts
SLICE numbers at a time, so memory does not grow with the corpus.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from course_lib.corpus.dedup import Hashes
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map

# Numbers that a worker sorts at a time; sorting takes about 40 bytes of memory per number.
SLICE = 1 << 24
# Numbers read from a column at a time, and documents compared at a time.
BLOCK, PAIRS = 1 << 20, 1 << 14
# In a band that many documents share, each is compared with this many of the earliest ones.
ANCHORS = 1000
# Documents from which on the search is worth starting processes.
WORTH_WORKERS = 10_000
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
# Path of a column, and the lowest and highest value of a slice of it.
Slice = tuple[Path, int, int]
# Returns the signatures of documents, the lowest bytes of their MinHash values, by position, [positions, num_perm].
SignatureReader = Callable[[Positions], npt.NDArray[np.uint8]]


def repeats(column: Path, mask: Path | None = None, workers: int = 1, label: str = tr_noop("repeats")) -> Flags:
    """Return which hashes in a file occur at an earlier position, [positions].

    A byte 0 in the file `mask` leaves a position out of the search.
    """
    flags = np.zeros(column.stat().st_size // 8, dtype=np.bool_)
    slices = list(_slices(column))
    with progress(len(slices), "slice", tr("searching {label}", label=tr(label))) as bar:
        for positions in ordered_map(partial(_repeats_in, mask), slices, workers):
            flags[positions] = True
            bar.update()
    return flags


def near_repeats(
    bands: Sequence[Path], signatures: Path, shape: tuple[int, int], needed: float, workers: int = 1
) -> Positions:
    """Return, for each document, the position of the earliest one that it nearly duplicates, or -1, [documents].

    Documents that share the hash of a whole band are near-duplicates if at least `needed` signature values are equal.

    Args:
        bands: for each band, a file with the hash of that band for each document.
        signatures: file of the lowest bytes of the MinHash values, [documents, num_perm].
        shape: (documents, num_perm).
        needed: number of equal values from which on documents are near-duplicates.
        workers: number of processes.
    """
    earliest = np.full(shape[0], -1, dtype=np.int64)
    slices = [each for band in bands for each in _slices(band)]
    compare = partial(_near_in, signatures, shape, needed)
    workers = workers if len(earliest) > WORTH_WORKERS else 1
    with progress(len(slices), "band", "searching near-duplicates") as bar:
        for later, earlier in ordered_map(compare, slices, workers):
            # A document has one value in a band, so `later` has no position twice.
            known = earliest[later]
            earliest[later] = np.where(known < 0, earlier, np.minimum(known, earlier))
            bar.update()
    return earliest


def _slices(column: Path) -> Iterator[Slice]:
    """Cut the range of 64-bit values into slices of about SLICE values each, since hashes are evenly distributed."""
    number = max(1, -(-column.stat().st_size // (8 * SLICE)))
    borders = [index * (1 << 64) // number for index in range(number + 1)]
    for low, high in pairwise(borders):
        yield column, low, high - 1


def _sorted(column_slice: Slice, mask: Path | None = None) -> tuple[Hashes, Positions]:
    """Return the values in a slice in ascending order, and their positions; equal values are in corpus order."""
    values, positions = in_range(*column_slice, mask)
    order = np.argsort(values, kind="stable")
    return values[order], positions[order]


def in_range(column: Path, low: int, high: int, mask: Path | None = None) -> tuple[Hashes, Positions]:
    """Return the hashes from `low` to `high` in a file, and their positions, without those with a byte 0 in `mask`."""
    values, positions = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
    # An empty file cannot be mapped.
    stored = np.memmap(column, dtype=np.uint64, mode="r") if column.stat().st_size else values[0]
    searched = np.memmap(mask, dtype=np.bool_, mode="r") if mask and len(stored) else None
    for start in range(0, len(stored), BLOCK):
        block = stored[start : start + BLOCK]
        inside = (block >= np.uint64(low)) & (block <= np.uint64(high))
        if searched is not None:
            inside &= searched[start : start + BLOCK]
        found = np.flatnonzero(inside)
        values.append(block[found])
        positions.append(start + found)
    return np.concatenate(values), np.concatenate(positions)


def _repeats_in(mask: Path | None, column_slice: Slice) -> Positions:
    return repeated(*_sorted(column_slice, mask))


def repeated(values: Hashes, positions: Positions) -> Positions:
    """Return the positions of ascending hashes that occur at an earlier position; ascending for equal hashes."""
    later: Positions = positions[1:][values[1:] == values[:-1]]
    return later


def _near_in(
    signatures: Path, shape: tuple[int, int], needed: float, column_slice: Slice
) -> tuple[Positions, Positions]:
    """Return the positions of near-duplicates in a slice of a band, and of the earliest one for each."""
    values, positions = _sorted(column_slice)
    if len(values) < 2:
        return positions[:0], positions[:0]
    rows = np.memmap(signatures, dtype=np.uint8, mode="r", shape=shape)
    return near_repeated(values, positions, rows.__getitem__, needed)


def near_repeated(
    values: Hashes, positions: Positions, signatures: SignatureReader, needed: float
) -> tuple[Positions, Positions]:
    """Return the positions of near-duplicates among documents with equal values of a band, and the earliest for each.

    No position occurs twice in the first array.

    Args:
        values: hashes of one band in ascending order, [documents].
        positions: the documents' positions in the corpus, in ascending order for equal hashes, [documents].
        signatures: returns the documents' signatures, by position.
        needed: number of equal signature values from which on documents are near-duplicates.
    """
    none: Positions = np.empty(0, dtype=np.int64)
    later, earlier = [none], [none]
    # Indices of the first document with each value.
    first = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(values) else none
    # For each document: the index of the first one with its value, and the number of those before it.
    start = np.repeat(first, np.diff(first, append=len(values)))
    rank = np.minimum(np.arange(len(values)) - start, ANCHORS)
    left = np.flatnonzero(rank > 0)
    # Documents with as many earlier ones are compared together, each with the first, then with the second, and so on.
    left = left[np.argsort(rank[left].astype(np.uint16), kind="stable")]
    for low in range(0, len(left), PAIRS):
        block = left[low : low + PAIRS]
        compared = signatures(positions[block])
        for anchor in range(ANCHORS):
            anchors = positions[start[block] + anchor]
            alike = _equal_values(compared, signatures(anchors)) >= needed
            later.append(positions[block[alike]])
            earlier.append(anchors[alike])
            again = np.flatnonzero(~alike & (rank[block] > anchor + 1))
            if not len(again):
                break
            block, compared = block[again], compared[again]
    return np.concatenate(later), np.concatenate(earlier)


def _equal_values(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> npt.NDArray[np.unsignedinteger]:
    """Return how many values of the signatures in each row are equal, [rows]."""
    # The narrowest type is added fastest, and four times as fast as np.count_nonzero counts.
    total: npt.DTypeLike = np.uint8 if one.shape[1] < 256 else np.uint16
    equal: npt.NDArray[np.unsignedinteger] = np.add.reduce((one == other).view(np.uint8), axis=1, dtype=total)
    return equal
