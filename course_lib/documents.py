"""The document format between chapters: JSON lines with a "text" (and "id", "title" where known). Plain text reads as documents too.

Files are read in batches of lines, so that memory does not depend on their size and worker processes get work worth a trip.
"""

import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from course_lib.errors import CourseError
from course_lib.files import inner_suffix, open_binary

BATCH = 1 << 20  # bytes of lines in a batch, about
LONGEST = 4  # batches; a longer document of plain text goes on as another


@dataclass(frozen=True)
class Batch:
    """Some whole lines of a file. `first` is the number of the first one, from 1."""

    path: Path
    first: int
    lines: list[bytes]
    size: int  # bytes of this batch


def read_batches(path: Path, size: int = BATCH) -> Iterator[Batch]:
    """The lines of a file in batches of about `size` bytes; plain text is cut between documents (a longer one is cut too). Raises CourseError."""
    plain = inner_suffix(path) == ".txt"
    lines: list[bytes] = []
    first, count, held = 1, 0, 0
    try:
        with open_binary(path) as file:
            for line in file:
                lines.append(line)
                held += len(line)
                count += 1
                if held >= size and (not plain or line.isspace() or held >= LONGEST * size):
                    yield Batch(path, first, lines, held)
                    lines, first, held = [], count + 1, 0
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        # the disk's or the system's, not the file's content
        if isinstance(error, OSError) and error.errno:
            error.filename = error.filename or str(path)
            raise
        raise CourseError(f"{path}: broken or truncated after line {count}: {error}") from error
    if lines:
        yield Batch(path, first, lines, held)


def read_texts(path: Path) -> Iterator[str]:
    """The texts of a whole file, one document at a time. Raises CourseError."""
    for batch in read_batches(path):
        yield from texts(batch)


def texts(batch: Batch) -> Iterator[str]:
    """The texts of a batch: one per JSON line, or one per block of lines in a plain .txt file.

    Raises CourseError naming file and line of what is not a JSON object with a string "text", or not UTF-8.
    """
    if inner_suffix(batch.path) == ".txt":
        yield from _blocks(batch)
        return
    for number, line in enumerate(batch.lines, batch.first):
        if line.isspace():
            continue
        try:
            document: Any = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise CourseError(f"{batch.path}, line {number}: not readable as JSON: {error}") from None
        if not isinstance(document, dict) or not isinstance(document.get("text"), str):
            raise CourseError(
                f'{batch.path}, line {number}: expected an object with a string "text", found {line[:60]!r}'
            )
        yield document["text"]


def _blocks(batch: Batch) -> Iterator[str]:
    block: list[str] = []
    for number, line in enumerate(batch.lines, batch.first):
        try:
            decoded = line.decode("utf-8-sig" if number == 1 else "utf8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise CourseError(f"{batch.path}, line {number}: not UTF-8 at byte {error.start} of the line") from None
        if decoded.strip():
            block.append(decoded)
        elif block:
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)
