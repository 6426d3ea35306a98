"""Splitting a MediaWiki dump into independent pieces, which several processes can decompress and parse.

A multistream .bz2 file consists of many bz2 streams, whose boundaries can be found without decompressing. Other files
are decompressed here and cut at arbitrary positions; `split_pages` and wikipedia.py rejoin a page that was cut.
"""

import bz2
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from course_lib.errors import CourseError
from course_lib.files import CHUNK, MAGIC, OPENERS, require_file

# The first ten bytes of every bz2 stream.
STREAM = re.compile(rb"BZh[1-9]1AY&SY")
# Compressed bytes; the minimum sent to a worker at once.
GROUP = 1 << 18
# Compressed bytes; a longer stream is not part of a multistream file and is decompressed here.
LONG_STREAM = 8 << 20
# Compressed bytes; a smaller file has so few streams that splitting by pages balances the work better.
SMALL_FILE = 8 << 20
PAGE, PAGE_END = b"<page>", b"</page>"


@dataclass(frozen=True)
class Piece:
    """A block of consecutive bytes from the dump."""

    content: bytes
    compressed: bool
    offset: int  # start of the piece in the stored file [compressed bytes]
    read: int  # bytes of the file that this piece covers, for the progress bar


def read_pieces(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a .xml, .xml.gz, .xml.bz2 or .xml.xz dump in file order, in constant memory."""
    require_file(path)
    if path.suffix not in (".xml", *MAGIC):
        raise CourseError(f"{path}: unknown ending {path.suffix!r}; allowed: .xml, .xml.gz, .xml.bz2, .xml.xz")
    with open(path, "rb") as file:
        if path.suffix == ".bz2" and path.stat().st_size > SMALL_FILE:
            yield from _bz2_pieces(file, path)
        else:
            yield from _stream_pieces(file, path, 0)


def decompress(piece: Piece, path: Path) -> bytes:
    """Return the XML bytes of a piece. Raises CourseError, with the position, if a stream is truncated or broken."""
    if not piece.compressed:
        return piece.content
    done, left, at = bytearray(), piece.content, piece.offset
    while left:
        stream = bz2.BZ2Decompressor()
        try:
            done += stream.decompress(left)
        except OSError:
            raise CourseError(f"{path}: broken bz2 data in the stream that starts at byte {at}") from None
        if not stream.eof:
            raise CourseError(f"{path}: truncated: the file ends inside the bz2 stream that starts at byte {at}")
        at, left = at + len(left) - len(stream.unused_data), stream.unused_data
    return bytes(done)


def split_pages(block: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a block into the bytes before the first page, the whole pages, and the bytes after the last whole page.

    The `<page>` tag always starts a page, because the text of a page can contain it only in escaped form.
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
    file.seek(0)
    while True:
        block = file.read(CHUNK)
        buffer += block
        # The last stream that begins after byte 0.
        border = max((match.start() for match in STREAM.finditer(buffer, 1)), default=0)
        if border >= GROUP or (not block and buffer):
            end = border if block else len(buffer)
            yield Piece(buffer[:end], True, offset, end)
            buffer, offset = buffer[end:], offset + end
        if not block:
            return
        if len(buffer) > LONG_STREAM:
            yield from _stream_pieces(file, path, offset)
            return


def _stream_pieces(file: BinaryIO, path: Path, offset: int) -> Iterator[Piece]:
    """Decompress the file from `offset` in this process and yield pieces of about 1 MB of XML."""
    file.seek(offset)
    stream: Any = OPENERS[path.suffix](file) if path.suffix in OPENERS else file
    while content := stream.read(CHUNK):
        yield Piece(content, False, offset, file.tell() - offset)
        offset = file.tell()
