"""Columns of hashes: what their ranges yield."""

from pathlib import Path

import numpy as np
import pytest
from course_lib.corpus.repeats import repeated
from course_lib.scale import search
from course_lib.scale.store import Store


@pytest.mark.parametrize("values", [3, 500, 10**6])
def test_ranges_hold_each_kept_hash_once_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: int) -> None:
    rng = np.random.default_rng(0)
    choices = rng.integers(0, 1 << 64, values, dtype=np.uint64)
    every = []
    for name in ("documents", "chosen"):
        (tmp_path / name).mkdir()
    for shard in range(3):
        hashes, mask = rng.choice(choices, 400), rng.random(400) < 0.7
        hashes.tofile(tmp_path / f"documents/{shard:05}.hashes")
        mask.tofile(tmp_path / f"chosen/{shard:05}.kept")
        every += [(int(hashes[at]), (shard << 32) + int(at)) for at in np.flatnonzero(mask)]
    store = Store(str(tmp_path))
    monkeypatch.setattr(search, "SLICE", 100)
    parts = search.ranges(store, "hashes")
    assert len(parts) == 12
    found = [search.read_range(store, "hashes", part, "chosen") for part in parts]
    hashes, keys = (np.concatenate(column) for column in zip(*found, strict=True))
    assert list(zip(hashes.tolist(), keys.tolist(), strict=True)) == sorted(every)
    alone = search.read_range(store, "hashes", "0000-of-0001", "chosen")
    assert np.array_equal(np.sort(np.concatenate([repeated(*part) for part in found])), np.sort(repeated(*alone)))
