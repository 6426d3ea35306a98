"""Reader for documents in a web text file: blocks of lines between empty lines, as bytes, in bounded memory.

This module handles compression, line endings and damaged files. It does not decode or judge the content of a line.
"""

import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from course_lib.documents import encoding_hint
from course_lib.errors import CourseError
from course_lib.files import CHUNK, MAGIC, OPENERS, TrailingBytes, require_file
from course_lib.parallel import until_error

BOM, UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class WebBatch:
    """About 1 MB of whole documents as stored in the file, not decoded."""

    first: int  # running number of the first document
    documents: list[bytes]
    read: int  # bytes of the stored file read since the last batch
    long_lines: int  # lines omitted because they are too long
    cut: int  # documents cut at the maximum length; the rest becomes the next document


def read_web(path: Path, max_line: int, max_document: int, first: int = 1) -> Iterator[WebBatch]:
    """Yield the documents in a plain, .xz, .gz or .bz2 file in batches, numbered from `first`.

    Only one batch, one document (at most max_document bytes plus a line) and one line (at most max_line bytes) are in
    memory. Lines over `max_line` bytes are omitted, documents are cut at `max_document` bytes. Raises CourseError
    before the first batch if the path is not a UTF-8 text file, and after the documents before the damage if the data
    is truncated or broken.
    """
    reader = _Reader(path, max_line, max_document, first)
    documents: list[bytes] = []
    size, errors = 0, list[CourseError]()
    with open(require_file(path), "rb") as raw:
        _check_start(path, raw)
        for document in until_error(reader.documents(raw), errors):
            documents.append(document)
            size += len(document)
            if size >= CHUNK:
                yield reader.batch(documents, raw)
                documents, size = [], 0
        if documents:
            yield reader.batch(documents, raw)
    if errors:
        raise errors[0]


class _Reader:
    """The documents of an open file, and what was read, omitted and cut since the last batch."""

    def __init__(self, path: Path, max_line: int, max_document: int, first: int) -> None:
        self.path, self.max_line, self.max_document, self.first = path, max_line, max_document, first
        self.position = self.long_lines = self.cut = 0
        self.stream: Any = None

    def batch(self, documents: list[bytes], raw: BinaryIO) -> WebBatch:
        """Return a batch, and begin to count for the next one."""
        if not self.position:
            _require_utf8(self.path, b"".join(documents))
        batch = WebBatch(self.first, documents, raw.tell() - self.position, self.long_lines, self.cut)
        self.first += len(documents)
        self.position, self.long_lines, self.cut = raw.tell(), 0, 0
        return batch

    def documents(self, raw: BinaryIO) -> Iterator[bytes]:
        """Yield the blocks of lines between empty lines. A block whose lines were all too long is an empty document."""
        block: list[bytes] = []
        size, begun = 0, False
        for line in self.lines(raw):
            if line is None or line.strip():
                block.append(line or b"")
                size += len(line or b"")
                begun = True
                if size < self.max_document:
                    continue
                self.cut += 1
            if begun:
                yield b"".join(block)
                block, size, begun = [], 0, False
        if begun:
            yield b"".join(block)

    def lines(self, raw: BinaryIO) -> Iterator[bytes | None]:
        """Yield the lines of the file; None for a line that is too long, which is never held in memory as a whole."""
        # Kept until the end, because its destructor closes the file.
        self.stream = OPENERS[self.path.suffix](raw) if self.path.suffix in OPENERS else raw
        start = BOM
        try:
            while line := self.stream.readline(self.max_line + 1):
                line, start = line.removeprefix(start), b""
                if len(line) <= self.max_line or line.endswith(b"\n"):
                    yield line
                    continue
                while line and not line.endswith(b"\n"):
                    line = self.stream.readline(CHUNK)
                self.long_lines += 1
                yield None
        except TrailingBytes as error:
            raise CourseError(f"{self.path}: {error}") from None
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            kind = "truncated" if isinstance(error, EOFError) else "broken"
            where = f"near byte {raw.tell()} of {self.path.stat().st_size}"
            raise CourseError(f"{self.path}: {kind} {self.path.suffix[1:]} data {where}") from None


def is_utf8(line: bytes) -> bool:
    """Return whether a line can be decoded."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _require_utf8(path: Path, content: bytes) -> None:
    """Raise CourseError if no line of the first batch of a file is UTF-8."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    if lines and not any(map(is_utf8, lines)):
        raise CourseError(f"{path}: none of the first {len(lines):,} lines is UTF-8{encoding_hint(content)}")


def _check_start(path: Path, raw: BinaryIO) -> None:
    """Raise CourseError if the first bytes of a file do not match its suffix or are UTF-16."""
    start = raw.read(6)
    raw.seek(0)
    expected = MAGIC.get(path.suffix)
    if expected and not start.startswith(expected):
        raise CourseError(f"{path}: not {path.suffix[1:]} data (it begins with {start!r})")
    for suffix, magic in MAGIC.items():
        if not expected and start.startswith(magic):
            raise CourseError(f"{path}: is {suffix[1:]} data; its name has to end in {suffix}")
    if start.startswith(UTF16):
        raise CourseError(f"{path}: is UTF-16, expected UTF-8")
