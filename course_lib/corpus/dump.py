"""A MediaWiki dump as independent pieces of bytes, so that processes can share the work of decompressing and parsing it.

A multistream .bz2 is many bz2 files in a row: their borders can be found without decompressing. Other forms (.xml, .xml.gz, one
long bz2 stream) are decompressed here and cut blindly; `split_pages` and the stitching in wikipedia.py mend the cuts. This module
knows bytes and `<page>` borders, nothing of what is in a page.
"""

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from course_lib.errors import CourseError
from course_lib.files import CHUNK, require_file

STREAM = re.compile(rb"BZh[1-9]1AY&SY")  # the first ten bytes of every bz2 stream
GROUP = 1 << 18  # compressed bytes that go to a worker at once, at least
LONG_STREAM = 8 << 20  # compressed bytes; a longer stream is no multistream part and is decompressed here
SMALL_FILE = 8 << 20  # compressed bytes; so few streams that sharing out pages balances better than sharing streams
STEP = 1 << 14  # compressed bytes decompressed at once: what a broken place costs at most
PAGE, PAGE_END = b"<page>", b"</page>"


@dataclass(frozen=True)
class Piece:
    """Some bytes of the dump. `offset` is where they start in the file, as stored (compressed bytes)."""

    content: bytes
    compressed: bool
    offset: int
    read: int  # bytes of the file this piece brought, for the progress bar


class Damaged(CourseError):
    """The stream ends or breaks in the middle; `rescued` is what could be decompressed before that."""

    def __init__(self, message: str, rescued: bytes = b"") -> None:
        super().__init__(message)
        self.rescued = rescued

    def __reduce__(self) -> tuple[type, tuple[str, bytes]]:  # so that it travels from a worker whole
        return type(self), (str(self), self.rescued)


def read_pieces(path: Path) -> Iterator[Piece]:
    """The pieces of a .xml, .xml.gz, .xml.bz2 or .xml.xz dump in file order, in constant memory.

    Raises CourseError for other endings.
    """
    require_file(path)
    if path.suffix not in (".xml", ".gz", ".bz2", ".xz"):
        raise CourseError(f"{path}: unknown ending {path.suffix!r}; allowed: .xml, .xml.gz, .xml.bz2, .xml.xz")
    with open(path, "rb") as file:
        start = file.read(10)
        file.seek(0)
        if path.suffix == ".bz2":
            if not STREAM.match(start):
                raise CourseError(f"{path}: not a bz2 file (it begins with {start[:4]!r})")
            if path.stat().st_size <= SMALL_FILE:
                yield from _stream_pieces(file, path, 0, b"", bz2.BZ2Decompressor)
            else:
                yield from _bz2_pieces(file, path)
        elif path.suffix == ".gz":
            if start[:2] != b"\x1f\x8b":
                raise CourseError(f"{path}: not a gzip file (it begins with {start[:4]!r})")
            yield from _stream_pieces(file, path, 0, b"", lambda: zlib.decompressobj(wbits=31))
        elif path.suffix == ".xz":
            if start[:6] != b"\xfd7zXZ\0":
                raise CourseError(f"{path}: not an xz file (it begins with {start[:4]!r})")
            yield from _stream_pieces(file, path, 0, b"", lzma.LZMADecompressor)
        else:
            offset = 0
            while block := file.read(CHUNK):
                yield Piece(block, False, offset, len(block))
                offset += len(block)


def decompress(piece: Piece, path: Path) -> bytes:
    """The XML bytes of a piece. Raises Damaged with the offset of a truncated or broken stream and what came before it."""
    if not piece.compressed:
        return piece.content
    done, left, at = bytearray(), piece.content, piece.offset
    while left:
        stream = bz2.BZ2Decompressor()
        try:
            for start in range(0, len(left), STEP):  # small steps: a broken block costs only itself
                done += stream.decompress(left[start : start + STEP])
                if stream.eof:
                    rest = stream.unused_data + left[start + STEP :]
                    break
            else:
                raise Damaged(
                    f"{path}: truncated: the file ends inside the bz2 stream that starts at byte {at}", bytes(done)
                )
        except OSError:
            raise Damaged(f"{path}: broken bz2 data in the stream that starts at byte {at}", bytes(done)) from None
        at += len(left) - len(rest)
        left = rest
    return bytes(done)


def split_pages(block: bytes) -> tuple[bytes, bytes, bytes]:
    """(before the first page, whole pages, after the last whole page). Pages are cut at `<page>`: text can hold it only escaped."""
    first, last = block.find(PAGE), block.rfind(PAGE_END)
    if first < 0:
        return block, b"", b""
    if last < first:
        return block[:first], b"", block[first:]
    last += len(PAGE_END)
    return block[:first], block[first:last], block[last:]


def _bz2_pieces(file: BinaryIO, path: Path) -> Iterator[Piece]:
    buffer, offset = b"", 0
    while True:
        block = file.read(CHUNK)
        buffer += block
        border = _last_border(buffer)
        if border >= GROUP or (not block and buffer):
            end = border if block else len(buffer)
            yield Piece(buffer[:end], True, offset, end)
            buffer, offset = buffer[end:], offset + end
        if not block:
            return
        if len(buffer) > LONG_STREAM:
            yield from _stream_pieces(file, path, offset, buffer, bz2.BZ2Decompressor)
            return


def _last_border(buffer: bytes) -> int:
    """Where the last stream that begins in the buffer begins; 0 if only the first does."""
    borders = [match.start() for match in STREAM.finditer(buffer, 1)]
    return borders[-1] if borders else 0


def _stream_pieces(
    file: BinaryIO, path: Path, offset: int, first: bytes, new_decompressor: Callable[[], Any]
) -> Iterator[Piece]:
    """Decompresses here, about 1 MB of XML a piece, and goes on into the next stream where one ends.

    `first` is what was read already, from byte `offset` of the file on.
    """
    kind = path.suffix[1:]
    stream, ready, at, read = new_decompressor(), bytearray(), offset, 0
    for block in _blocks(file, first):
        read += len(block)
        try:
            while block:
                if stream.eof:
                    stream = new_decompressor()
                ready += stream.decompress(block)
                block = stream.unused_data if stream.eof else b""
        except (OSError, EOFError, zlib.error, lzma.LZMAError):
            yield Piece(bytes(ready), False, at, read)
            raise CourseError(f"{path}: broken {kind} data within {STEP >> 10} kB before byte {at + read}") from None
        if len(ready) >= CHUNK:
            yield Piece(bytes(ready), False, at, read)
            at, read = at + read, 0
            ready.clear()
    yield Piece(bytes(ready), False, at, read)
    if not stream.eof:
        raise CourseError(f"{path}: truncated: the {kind} data stops at byte {at + read} without its end mark")


def _blocks(file: BinaryIO, first: bytes) -> Iterator[bytes]:
    for start in range(0, len(first), STEP):
        yield first[start : start + STEP]
    while block := file.read(STEP):
        yield block
