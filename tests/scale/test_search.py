"""Columns of hashes: what ranges yield, and that datatrove's own bucket stage reads the same files."""

import struct
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from course_lib.corpus.repeats import repeated
from course_lib.scale import search
from course_lib.scale.store import Store
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
from datatrove.utils.hashing import HashConfig


def columns(folder: Path, bits: int, values: int) -> tuple[Store, list[np.ndarray]]:
    """Three shards of 400 hashes of `bits` bits, of which `values` are different."""
    rng = np.random.default_rng(0)
    choices = rng.integers(0, 1 << bits, values, dtype=np.uint64)
    shards = [rng.choice(choices, 400) for _ in range(3)]
    (folder / "bucket_000").mkdir(parents=True)
    for number, hashes in enumerate(shards):
        search.write_column(folder / "bucket_000" / f"{number:05}{search.SUFFIX}", hashes, np.arange(400))
    return Store(str(folder)), shards


@pytest.mark.parametrize(("values", "bits"), [(3, 64), (500, 61), (10**6, 64)])
def test_ranges_hold_each_record_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int, values: int
) -> None:
    store, shards = columns(tmp_path, bits, values)
    monkeypatch.setattr(search, "SLICE", 100)
    parts = search.ranges(store, "bucket_000")
    assert len(parts) == 12
    found = [search.read_range(store, "bucket_000", part, bits) for part in parts]
    hashes, keys = (np.concatenate(column) for column in zip(*found, strict=True))
    every = sorted((int(value), (number << 32) + index) for number, shard in enumerate(shards) for index, value in enumerate(shard))  # fmt: skip
    assert list(zip(hashes.tolist(), keys.tolist(), strict=True)) == every
    alone = search.read_range(store, "bucket_000", "0000-of-0001", bits)
    assert np.array_equal(np.sort(np.concatenate([repeated(*part) for part in found])), np.sort(repeated(*alone)))


def test_datatrove_reads_the_files_and_finds_the_same_groups(tmp_path: Path) -> None:
    store, shards = columns(tmp_path / "in", search_bits := 61, 200)
    settings = MinhashConfig(num_buckets=1, hashes_per_bucket=1, hash_config=HashConfig(64, "sha1"))
    MinhashDedupBuckets(str(tmp_path / "in"), str(tmp_path / "out"), config=settings).run(None, 0, 1)
    pairs = [
        ((a << 32) + i, (b << 32) + j)
        for a, i, b, j in struct.iter_unpack("<4I", (tmp_path / "out" / "00000_00.dups").read_bytes())
    ]
    # It writes each document of a group with the one before it.
    groups = defaultdict(list)
    for number, shard in enumerate(shards):
        for index, value in enumerate(shard.tolist()):
            groups[value].append((number << 32) + index)
    assert sorted(pairs) == sorted(pair for group in groups.values() for pair in zip(group, group[1:], strict=False))
    later = repeated(*search.read_range(store, "bucket_000", "0000-of-0001", search_bits))
    assert sorted(later.tolist()) == sorted(second for _, second in pairs)
