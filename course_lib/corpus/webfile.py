"""Reader for documents in a web text file: blocks of lines between empty lines, as bytes, in bounded memory.

This module handles compression and line endings. It does not decode or judge the content of a line.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from course_lib.documents import encoding_hint, lines_of_text
from course_lib.errors import CourseError
from course_lib.files import CHUNK, OPENERS, require_file

BOM = b"\xef\xbb\xbf"
# Share of the lines with characters other than ASCII from which a file in another encoding is refused.
REFUSED = 0.9


@dataclass(frozen=True)
class WebBatch:
    """Whole documents, about 1 MB, as stored in the file, not decoded."""

    first: int  # running number of the first document
    documents: list[bytes]
    read: int  # bytes of the stored file read since the last batch
    too_long: int  # lines omitted because they are too long
    cut: int  # documents cut at the maximum length; the rest becomes the next document


def read_web(path: Path, max_line: int, max_document: int, first: int = 1, size: int = CHUNK) -> Iterator[WebBatch]:
    """Yield the documents in a plain, .xz, .gz or .bz2 file in batches of `size` bytes, numbered from `first`.

    Only one batch, one document (at most max_document bytes plus a line) and one line (at most max_line bytes) are in
    memory. Lines over `max_line` bytes are omitted, documents are cut at `max_document` bytes. Raises CourseError
    if the path is not a UTF-8 text file, or if its data is truncated or broken.
    """
    documents: list[bytes] = []
    counts: Counter[str] = Counter()
    # Bytes in `documents`, and position in the stored file at the last batch.
    batch_size = position = 0
    with open(require_file(path), "rb") as raw:
        stream = OPENERS[path.suffix](raw) if path.suffix in OPENERS else raw
        lines = _lines(lines_of_text(stream), max_line, counts)
        for document in chain(_documents(lines, max_document, counts), (None,)):
            if document is not None:
                documents.append(document)
                batch_size += len(document)
            if batch_size >= size or (document is None and documents):
                if not position:
                    _require_utf8(path, b"".join(documents))
                yield WebBatch(first, documents, raw.tell() - position, counts["too long"], counts["cut"])
                first, position = first + len(documents), raw.tell()
                documents, batch_size = [], 0
                counts.clear()


def _documents(lines: Iterable[bytes | None], max_document: int, counts: Counter[str]) -> Iterator[bytes]:
    """Yield the blocks of lines between empty lines. A block whose lines were all too long is an empty document."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        if line is None or line.strip():
            block.append(line or b"")
            size += len(line or b"")
            if size < max_document:
                continue
            counts["cut"] += 1
        if block:
            yield b"".join(block)
            block, size = [], 0
    if block:
        yield b"".join(block)


def _lines(stream: Any, max_line: int, counts: Counter[str]) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for a line that is too long, which is never in memory as a whole."""
    start = BOM
    while line := stream.readline(max_line + 1):
        line, start = line.removeprefix(start), b""
        if len(line) <= max_line or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(CHUNK)
        counts["too long"] += 1
        yield None


def is_utf8(line: bytes) -> bool:
    """Return whether a line can be decoded."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _require_utf8(path: Path, content: bytes) -> None:
    """Raise CourseError if almost no line of the first batch of a file is UTF-8; ASCII says nothing."""
    lines = [line for line in content.split(b"\n") if not line.isascii()]
    bad = len(lines) - sum(map(is_utf8, lines))
    if bad and bad >= REFUSED * len(lines):
        counts = f"{bad:,} of the first {len(lines):,} lines that are not ASCII are not UTF-8"
        raise CourseError(f"{path}: {counts}{encoding_hint(content)}")
