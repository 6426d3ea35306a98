"""Checksums and containers, sound and damaged."""

import bz2
import lzma
import tracemalloc
from pathlib import Path

import pytest
from course_lib.corpus.download import container_flaw, read_checksum

from tests.corpus.mirror import noise


@pytest.mark.parametrize("kind", ["xz", "bz2"])
def test_container_flaw(tmp_path: Path, kind: str) -> None:
    compress = lzma.compress if kind == "xz" else bz2.compress
    one, bomb = compress(noise(2_500_000)), compress(b"\0" * 30_000_000)  # the second grows a thousandfold
    path = tmp_path / f"x.{kind}"
    for sound in (one, one + one, bomb + one):
        path.write_bytes(sound)
        assert container_flaw(path, f".{kind}") == ""
    if kind == "xz":
        path.write_bytes(one + bytes(4) + one + bytes(12))
        assert container_flaw(path, f".{kind}") == ""
    path.write_bytes(one + bytes(5))
    assert f"ends at byte {len(one)}, but the file goes on" in container_flaw(path, f".{kind}")
    path.write_bytes(bomb)
    tracemalloc.start()
    assert container_flaw(path, f".{kind}") == ""
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16_000_000
    for bad in (b"", one[:-1], one + one[:100], one + b"x", one[:1_500_000] + b"?" + one[1_500_001:]):
        path.write_bytes(bad)
        assert container_flaw(path, f".{kind}")


def test_read_checksum() -> None:
    listing = f"junk\n{'A' * 40} *./ja.txt.xz\n{'b' * 40}  other\n{'c' * 39}  short\n"
    found = read_checksum(listing, "sha1", r"ja\.txt\.xz")
    assert found is not None and (found.digest, found.name) == ("a" * 40, "ja.txt.xz")
    assert read_checksum(listing, "sha1", "short") is None
