"""Division of a MediaWiki dump into independent pieces of bytes, which several processes can decompress and parse.

A multistream .bz2 file consists of many bz2 streams, whose borders can be found without decompressing. Other forms
(.xml, .xml.gz, .xml.xz, one long bz2 stream) are decompressed here and cut at arbitrary positions. `split_pages`
and wikipedia.py join a page that was cut. This module finds `<page>` borders; it does not read the content of a page.
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

# The first ten bytes of every bz2 stream.
STREAM = re.compile(rb"BZh[1-9]1AY&SY")
# Compressed bytes; the least that goes to a worker at once.
GROUP = 1 << 18
# Compressed bytes; a longer stream is not part of a multistream file and is decompressed here.
LONG_STREAM = 8 << 20
# Compressed bytes; a smaller file has so few streams that the work is balanced better by pages than by streams.
SMALL_FILE = 8 << 20
# Compressed bytes decompressed at once: the most that a damaged spot costs.
STEP = 1 << 14
PAGE, PAGE_END = b"<page>", b"</page>"


@dataclass(frozen=True)
class Piece:
    """A block of consecutive bytes of the dump."""

    content: bytes
    compressed: bool
    offset: int  # where the piece starts in the file as stored [compressed bytes]
    read: int  # bytes of the file that this piece covers, for the progress bar


class Damaged(CourseError):
    """A truncated or broken stream; `rescued` holds the bytes decompressed before the damage."""

    def __init__(self, message: str, rescued: bytes = b"") -> None:
        super().__init__(message)
        self.rescued = rescued

    # A worker process returns the exception by pickle, which would lose `rescued` otherwise.
    def __reduce__(self) -> tuple[type, tuple[str, bytes]]:
        return type(self), (str(self), self.rescued)


def read_pieces(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a .xml, .xml.gz, .xml.bz2 or .xml.xz dump in file order, in constant memory.

    Raises CourseError for any other suffix, for content that does not match the suffix, and for damaged data that is
    decompressed here.
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
    """Return the XML bytes of a piece.

    Raises Damaged for a truncated or broken stream, with the stream's offset and the bytes decompressed so far.
    """
    if not piece.compressed:
        return piece.content
    done, left, at = bytearray(), piece.content, piece.offset
    while left:
        stream = bz2.BZ2Decompressor()
        try:
            # small steps, so that a broken block does not cost the blocks before it
            for start in range(0, len(left), STEP):
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
    """Divide a block into the bytes before the first page, the whole pages, and the bytes after the last whole page.

    The tag `<page>` always begins a page, because the text of a page can contain the tag only in escaped form.
    """
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
    """Return the position of the last stream that begins in the buffer; 0 if no stream begins after byte 0."""
    borders = [match.start() for match in STREAM.finditer(buffer, 1)]
    return borders[-1] if borders else 0


def _stream_pieces(
    file: BinaryIO, path: Path, offset: int, first: bytes, new_decompressor: Callable[[], Any]
) -> Iterator[Piece]:
    """Decompress a file in this process, all its streams in a row, and yield pieces of about 1 MB of XML.

    `first` are the bytes from `offset` on that were read from the file already.
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
        raise CourseError(
            f"{path}: truncated: the {kind} data stops at byte {at + read}, before its end-of-stream marker"
        )


def _blocks(file: BinaryIO, first: bytes) -> Iterator[bytes]:
    for start in range(0, len(first), STEP):
        yield first[start : start + STEP]
    while block := file.read(STEP):
        yield block
