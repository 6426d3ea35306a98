"""Search for equal hashes over the shards of a corpus, in ranges of hashes that each fit into memory.

A column has a file of 64-bit hashes for each shard, written by the stage `documents`. datatrove's own search for
near-duplicates takes 2.7 µs of Python for each hash, against 0.05 to 0.15 µs here, and joins chains of near-duplicates.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from course_lib.corpus.dedup import Hashes
from course_lib.corpus.repeats import Positions, in_range
from course_lib.scale.store import Store

# Hashes that a task sorts at a time; it needs about 40 bytes for each.
SLICE = 1 << 23


def ranges(store: Store, column: str) -> list[str]:
    """Return the names of the ranges of a column, such as 0003-of-0008; a column without hashes has none."""
    sizes = store.sizes("documents").items()
    parts = -(-sum(size for name, size in sizes if name.endswith(f".{column}")) // (8 * SLICE))
    return [f"{part:04}-of-{parts:04}" for part in range(parts)]


def read_range(store: Store, column: str, part: str, mask_stage: str = "") -> tuple[Hashes, Positions]:
    """Return the hashes in a range in ascending order, and their keys, which ascend for equal hashes.

    A key is shard << 32 | position in the shard. The files of the stage `mask_stage` have a byte 0 for each hash that
    is left out.
    """
    number, parts = (int(word) for word in part.split("-of-"))
    low, high = ((step << 64) // parts for step in (number, number + 1))
    values, keys = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
    for name in store.sizes("documents"):
        if name.endswith(f".{column}"):
            unit = Path(name).stem
            masks = [f"{mask_stage}/{unit}.kept"] if mask_stage else []
            with store.reading(name) as (path,), store.reading(*masks) as mask:
                found, positions = in_range(path, low, high - 1, *mask)
            values.append(found)
            keys.append(int(unit) << 32 | positions)
    found = np.concatenate(values)
    order = np.argsort(found, kind="stable")
    return found[order], np.concatenate(keys)[order]


def keys_of(store: Store, stage: str, shard: int) -> npt.NDArray[np.int64]:
    """Return the columns of a stage's results, .npy files, that belong to a shard, [rows, results], keys first."""
    found = []
    for name in store.sizes(stage):
        if name.endswith(".npy"):
            stored = np.load(store.cached(name), mmap_mode="r")
            low, high = np.searchsorted(stored[0], [shard << 32, (shard + 1) << 32])
            found.append(np.array(stored[:, low:high]))
    return np.concatenate(found, axis=1) if found else np.empty((2, 0), dtype=np.int64)
