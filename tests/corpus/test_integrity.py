"""Containers, sound and damaged."""

import bz2
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from course_lib.corpus.download import container_flaw

from tests.corpus.mirror import noise


@pytest.mark.parametrize(("ending", "compress"), [(".xz", lzma.compress), (".bz2", bz2.compress)])
def test_damaged_containers_are_told_from_sound_ones(
    tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    path, sound = tmp_path / f"x{ending}", compress(noise(1_200_000))
    path.write_bytes(sound * 2)
    assert container_flaw(path, ending) == ""
    for bad in (b"", sound[:-1], sound + sound[:100], sound + b"x", sound[:900_000] + b"?" + sound[900_001:]):
        path.write_bytes(bad)
        assert container_flaw(path, ending)
    path.write_bytes(compress(b"\0" * 30_000_000))
    tracemalloc.start()
    assert container_flaw(path, ending) == ""
    assert tracemalloc.get_traced_memory()[1] < 16_000_000
    tracemalloc.stop()
