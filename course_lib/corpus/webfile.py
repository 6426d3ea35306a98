"""Reader for documents in a web text file: blocks of lines between empty lines, as bytes, in bounded memory.

This module handles compression, line endings and damaged files. It does not decode or judge the content of a line.
"""

import io
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from course_lib.documents import encoding_hint
from course_lib.errors import CourseError
from course_lib.files import CHUNK, MAGIC, OPENERS, TrailingBytes, require_file

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Consecutive empty lines count as one.
EMPTY_LINES = re.compile(rb"\n\s*\n")
BOM, UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Batch:
    """About 1 MB of whole documents as stored in the file, not decoded."""

    first: int  # running number of the first document, from 1
    documents: list[bytes]
    read: int  # bytes of the stored file read since the last batch
    long_lines: int  # lines omitted because they are too long
    cut: int  # documents cut at the maximum length; the rest becomes the next document


class Documents:
    """The documents in a plain, .xz, .gz or .bz2 file, in batches.

    Damaged data ends the iteration. `problem` then describes the damage, so that the caller can first finish the
    documents before it. Only one batch, one document (at most max_document bytes plus a line) and one line (at most
    max_line bytes) are in memory.

    Iterating raises CourseError if the path is not a text file: a directory, an empty file, content that does not match
    the suffix, or UTF-16.

    Args:
        path: the file.
        max_line: maximum line length; longer lines are omitted [bytes].
        max_document: length at which a document is cut [bytes].
    """

    def __init__(self, path: Path, max_line: int, max_document: int) -> None:
        self.path = path
        self.problem = ""
        self._max_line, self._max_document = max_line, max_document
        self._long_lines = self._cut = self._told = 0

    def __iter__(self) -> Iterator[Batch]:
        with open(require_file(self.path), "rb") as raw:
            _check_start(self.path, raw)
            stream = _Squeezed(OPENERS[self.path.suffix](raw) if self.path.suffix in OPENERS else raw)
            documents: list[bytes] = []
            first, size = 1, 0
            for document in self._documents(self._lines(stream, raw)):
                documents.append(document)
                size += len(document)
                if size >= CHUNK:
                    yield self._batch(first, documents, raw)
                    first, documents, size = first + len(documents), [], 0
            if documents:
                yield self._batch(first, documents, raw)

    def _batch(self, first: int, documents: list[bytes], raw: BinaryIO) -> Batch:
        if first == 1:
            _require_utf8(self.path, b"".join(documents))
        batch = Batch(first, documents, raw.tell() - self._told, self._long_lines, self._cut)
        self._told, self._long_lines, self._cut = raw.tell(), 0, 0
        return batch

    def _documents(self, lines: Iterator[bytes | None]) -> Iterator[bytes]:
        """Yield the blocks of lines between empty lines. A block whose lines were all too long is an empty document."""
        block: list[bytes] = []
        size, begun = 0, False
        for line in lines:
            if line is None or line.strip():
                block.append(line or b"")
                size += len(line or b"")
                begun = True
                if size < self._max_document:
                    continue
                self._cut += 1
            if begun:
                yield b"".join(block)
                block, size, begun = [], 0, False
        if begun and not self.problem:
            yield b"".join(block)

    def _lines(self, stream: "_Squeezed", raw: BinaryIO) -> Iterator[bytes | None]:
        """Yield the lines of the file; None for a line that is too long, which is never held in memory as a whole."""
        lines = io.BufferedReader(stream, CHUNK)
        try:
            while line := lines.readline(self._max_line + 1):
                if len(line) <= self._max_line or line.endswith(b"\n"):
                    yield line
                    continue
                blank = True
                while line and not line.endswith(b"\n"):
                    blank = blank and line.isspace()
                    line = lines.readline(CHUNK)
                if blank and (not line or line.isspace()):
                    yield b"\n"
                    continue
                self._long_lines += 1
                yield None
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            kind = "truncated" if isinstance(error, EOFError) else "broken"
            self.problem = (
                f"{self.path}: {error}"
                if isinstance(error, TrailingBytes)
                else f"{self.path}: {kind} {self.path.suffix[1:]} data near byte {raw.tell()} "
                f"of {self.path.stat().st_size}, which is byte {stream.read_so_far} of the text"
            )


class _Squeezed(io.RawIOBase):
    """A stream without its byte order mark, in which runs of empty lines within a block of 1 MB are reduced to one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.read_so_far = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        block = b""
        while not block and (content := self._stream.read1(len(view))):
            block = EMPTY_LINES.sub(b"\n\n", content.removeprefix(BOM) if self.read_so_far == 0 else content)
            self.read_so_far += len(content)
        view[: len(block)] = block
        return len(block)


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
