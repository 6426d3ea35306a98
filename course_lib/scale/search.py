"""Search for equal hashes over the shards of a corpus, in ranges of hashes that each fit into memory.

A column is a folder with one file per shard, in the format of datatrove's MinHash signatures with one hash per bucket
(datatrove/pipeline/dedup/minhash.py): records of a 64-bit hash and a 32-bit index in the shard, sorted. datatrove's own
bucket stage takes 2.7 µs of Python for each record, against 0.05 to 0.15 µs here, and joins chains of near-duplicates.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from course_lib.corpus.grams import Hashes
from course_lib.corpus.repeats import Positions
from course_lib.scale.store import Store

RECORD = np.dtype([("hash", "<u8"), ("index", "<u4")])
SUFFIX = ".minhash.sig"
# Records that a task sorts at a time; it needs about 40 bytes for each.
SLICE = 1 << 23


def write_column(path: Path, hashes: Hashes, index: npt.NDArray[np.integer]) -> None:
    """Write the file of a shard: its hashes and their indices in the shard, sorted."""
    order = np.argsort(hashes, kind="stable")
    records = np.empty(len(hashes), dtype=RECORD)
    records["hash"], records["index"] = hashes[order], index[order]
    path.parent.mkdir(parents=True, exist_ok=True)
    records.tofile(path)


def ranges(store: Store, column: str) -> list[str]:
    """Return the names of the ranges of a column, such as 0003-of-0008; a column without records has none."""
    records = sum(size for name, size in store.sizes(column).items() if name.endswith(SUFFIX)) // RECORD.itemsize
    parts = -(-records // SLICE)
    return [f"{part:04}-of-{parts:04}" for part in range(parts)]


def read_range(store: Store, column: str, part: str, bits: int = 64) -> tuple[Hashes, Positions]:
    """Return the hashes in a range in ascending order, and their keys, which ascend for equal hashes.

    A key is shard << 32 | index in the shard; `bits` is the size of the hashes.
    """
    number, parts = (int(word) for word in part.split("-of-"))
    low, high = ((step << bits) // parts for step in (number, number + 1))
    values, keys = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
    for name, size in store.sizes(column).items():
        if name.endswith(SUFFIX):
            records = _between(store, name, size // RECORD.itemsize, low, high, bits)
            values.append(records["hash"])
            keys.append((int(Path(name).name.removesuffix(SUFFIX)) << 32) | records["index"].astype(np.int64))
    found = np.concatenate(values)
    order = np.argsort(found, kind="stable")
    return found[order], np.concatenate(keys)[order]


def _between(store: Store, name: str, count: int, low: int, high: int, bits: int) -> npt.NDArray[np.void]:
    """Return the records of a file with low <= hash < high.

    The hashes are evenly distributed, so their place in the file is known to within the square root of their number.
    """
    margin = 64 + 4 * int(count**0.5)
    while True:
        start = max(0, (low * count >> bits) - margin)
        end = min(count, (high * count >> bits) + margin)
        limits = {"start": start * RECORD.itemsize, "end": end * RECORD.itemsize}
        content = store.folder.cat_file(name, **limits) if end > start else b""
        records = np.frombuffer(content, dtype=RECORD)
        hashes = np.ascontiguousarray(records["hash"])
        first = int(np.searchsorted(hashes, np.uint64(low)))
        last = int(np.searchsorted(hashes, np.uint64(high - 1), side="right"))
        if (start == 0 or first > 0) and (end == count or last < len(records)):
            return records[first:last]
        margin *= 4


def keys_of(store: Store, stage: str, shard: int) -> npt.NDArray[np.int64]:
    """Return the columns of a stage's results, .npy files, that belong to a shard, [rows, results], keys first."""
    found = []
    for name in store.sizes(stage):
        if name.endswith(".npy"):
            stored = np.load(store.cached(name), mmap_mode="r")
            low, high = np.searchsorted(stored[0], [shard << 32, (shard + 1) << 32])
            found.append(np.array(stored[:, low:high]))
    return np.concatenate(found, axis=1) if found else np.empty((2, 0), dtype=np.int64)
