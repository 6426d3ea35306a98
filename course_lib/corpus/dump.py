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
from course_lib.files import CHUNK, MAGIC, OPENERS, open_binary, require_file

# The first ten bytes of every bz2 stream.
STREAM = re.compile(rb"BZh[1-9]1AY&SY")
# Compressed bytes; the minimum sent to a worker at once.
GROUP = 1 << 18
# Compressed bytes; a longer stream is not part of a multistream file and is decompressed here.
LONG_STREAM = 8 << 20
# Compressed bytes; a smaller file has so few streams that splitting by pages balances the work better.
SMALL_FILE = 8 << 20
# Bytes; what stands before the first page of a dump is shorter: 4 kB for the Japanese Wikipedia.
LONGEST_HEAD = 1 << 20
PAGE, PAGE_END = b"<page>", b"</page>"
WHOLE_PAGE = re.compile(PAGE + b".*?" + PAGE_END, re.S)
REVISION = re.compile(rb"<revision>.*?</revision>", re.S)
TIMESTAMP = re.compile(rb"<timestamp>\s*(.*?)\s*</timestamp>")
# The first <id> in a revision is that of the revision; another one is its contributor's.
IDENTIFIER = re.compile(rb"<id>\s*([0-9]+)\s*</id>")
HIDDEN_TEXT = re.compile(rb"<text\b[^<>]*\sdeleted=")


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
    content, compressed, offset = bytearray(), piece.content, piece.offset
    while compressed:
        stream = bz2.BZ2Decompressor()
        try:
            content += stream.decompress(compressed)
        except OSError:
            raise CourseError(f"{path}: broken bz2 data in the stream that starts at byte {offset}") from None
        if not stream.eof:
            raise CourseError(f"{path}: truncated: the file ends inside the bz2 stream that starts at byte {offset}")
        offset += len(compressed) - len(stream.unused_data)
        compressed = stream.unused_data
    return bytes(content)


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


def read_head(path: Path) -> tuple[bytes, bytes]:
    """Return what stands before the first page of a dump, and the first page up to its first revision."""
    head = b""
    with open_binary(path) as file:
        while b"<revision>" not in head and len(head) < LONGEST_HEAD and (block := file.read(LONGEST_HEAD // 16)):
            head += block
    before, _, page = head.partition(PAGE)
    return before, page.partition(b"<revision>")[0]


def newest_revisions(pages: bytes) -> bytes:
    """Remove all revisions of each page but the newest; dumps with the history of pages have all of them."""
    if pages.count(b"<revision>") <= pages.count(PAGE):
        return pages
    return WHOLE_PAGE.sub(lambda page: newest_revision(page[0]), pages)


def newest_revision(page: bytes) -> bytes:
    """Remove all whole revisions of a page, or of the beginning of one, but the newest.

    The newest has the latest time, and need not be the last one. A revision whose text is hidden (text/@deleted in
    https://www.mediawiki.org/xml/export-0.11.xsd) is used only if all are.
    """
    revisions = list(REVISION.finditer(page))
    if len(revisions) < 2:
        return page
    newest = max(reversed(revisions), key=_age)
    return page[: revisions[0].start()] + newest[0] + page[revisions[-1].end() :]


def _age(revision: re.Match[bytes]) -> tuple[bool, bytes, int]:
    """Return a key that is greater for a newer revision; of several in the same second, the last number is newest."""
    time, number = TIMESTAMP.search(revision[0]), IDENTIFIER.search(revision[0])
    return not HIDDEN_TEXT.search(revision[0]), time[1] if time else b"", int(number[1][:18]) if number else 0


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
