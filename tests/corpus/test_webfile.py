"""Documents out of bytes: every container, every kind of line end, and every way a file can be damaged."""

import bz2
import gzip
import lzma
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from course_lib.corpus.webfile import WebBatch, read_web
from course_lib.errors import CourseError

TEXT = "一行目\n二行目\n\n次の文書\n\n最後の文書\n終わり\n".encode()
DOCUMENTS = [["一行目", "二行目"], ["次の文書"], ["最後の文書", "終わり"]]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.compress,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
}


def read(path: Path, content: bytes, max_line: int = 1000, max_document: int = 10**6) -> tuple[list[WebBatch], str]:
    path.write_bytes(content)
    batches: list[WebBatch] = []
    try:
        batches.extend(read_web(path, max_line, max_document))
    except CourseError as error:
        return batches, str(error)
    return batches, ""


def lines(batches: list[WebBatch]) -> list[list[str]]:
    return [raw.decode().split() for batch in batches for raw in batch.documents]


@pytest.mark.parametrize(
    "content",
    [
        TEXT.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + TEXT,
        b"\n\n \n" + TEXT.replace(b"\n\n", b"\n\n\t\n\n") + b"\n\n",
        TEXT.rstrip(b"\n"),
    ],
    ids=["CRLF", "BOM", "many empty lines", "no last line end"],
)
def test_layouts(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "a.txt", content) == read(tmp_path / "b.txt", content)
    assert lines(read(tmp_path / "a.txt", content)[0]) == DOCUMENTS


def test_batches_are_numbered_through(tmp_path: Path) -> None:
    content = "".join(f"{number} {'あ' * 200}\n\n" for number in range(1, 6001)).encode()
    batches, _ = read(tmp_path / "a.txt.gz", gzip.compress(content))
    assert len(batches) > 2
    for batch in batches:
        assert [int(raw.split()[0]) for raw in batch.documents] == list(
            range(batch.first, batch.first + len(batch.documents))
        )
    assert lines(batches)[-1][0] == "6000"


def test_long_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    content = b"a" * 10 + b"\n" + b"b" * 11 + b"\nafter\n\n" + b"c" * 50 + b"\n\nlast\n" + b"d" * 99
    batches, _ = read(tmp_path / "a.txt", content, max_line=10)
    assert lines(batches) == [["aaaaaaaaaa", "after"], [], ["last"]]
    assert sum(batch.too_long for batch in batches) == 3


def test_a_line_of_50_mb_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"before\n\n" + b"x" * 50_000_000 + b"\n\nafter\n", preset=0))
    tracemalloc.start()
    batches = list(read_web(path, 1_000_000, 4_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines(batches) == [["before"], [], ["after"]]
    assert peak < 8_000_000


def test_a_document_without_end_is_cut(tmp_path: Path) -> None:
    batches, _ = read(tmp_path / "a.txt", b"".join(b"%03d\n" % n for n in range(100)), max_document=40)
    assert lines(batches) == [[f"{n:03}" for n in range(first, first + 10)] for first in range(0, 100, 10)]
    assert sum(batch.cut for batch in batches) == 10


@pytest.mark.parametrize("suffix", [".xz", ".gz", ".bz2"])
def test_truncated_anywhere(tmp_path: Path, suffix: str) -> None:
    content = "".join(f"文書{number:04}\n{hash((number, 1)):x}\n\n" for number in range(4000)).encode()
    stored = COMPRESS[suffix](content)
    whole, _ = read(tmp_path / f"a{suffix}", stored)
    assert len(lines(whole)) == 4000 and sum(batch.read for batch in whole) == len(stored)
    for length in (len(stored) // 9, len(stored) // 2, len(stored) - 1):
        problem = read(tmp_path / f"b{suffix}", stored[:length])[1]
        assert f"truncated {suffix[1:]} data near byte {length}" in problem


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt.xz", TEXT, "broken xz data"),
        ("a.gz", TEXT, "broken gz data"),
        ("a.bz2", lzma.compress(TEXT), "broken bz2 data"),
        ("a.txt", lzma.compress(TEXT), "are not UTF-8"),
        ("a.txt", "日本語".encode("utf-16"), "are not UTF-8; likely UTF-16"),
        ("a.txt", b"", "empty"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    assert re.search(rf"{name}: .*{message}", read(tmp_path / name, content)[1])
