"""Readers for documents: JSON Lines with a "text" (and optional "id" and "title"), or plain text.

Chapters exchange documents in this format. Files are read in batches of lines, so that memory use does not grow with
the file size and a batch is worth sending to a worker process.

Lines of a .jsonl file end with \\n or \\r\\n (jsonlines.org), those of a .txt file also with \\r alone. A text itself
may contain other line breaks, such as U+2028: `with_newlines` replaces them, and `str.splitlines` splits at them. Bytes
of a .jsonl file are never split so.
"""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from course_lib.errors import CourseError, notify
from course_lib.files import CHUNK, human_size, inner_suffix, open_binary
from course_lib.language.words import tr

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# approximate batch size [bytes]
BATCH = 1 << 20
# A plain-text document longer than this [batches] is split into several documents.
LONGEST = 4
# Size of a sample of a file [bytes], and the number of positions in the file at which its parts begin.
SAMPLE = 1 << 20
SAMPLE_PARTS = 64
# A line longer than this [bytes] is an error, because its words and ids use up to 100 times as much memory.
LONGEST_LINE = 16 << 20
KANA = re.compile("[ぁ-んァ-ヶ]")
# The line breaks in a text other than \n, as in `str.splitlines`: those of the Unicode Standard (section 5.8, newline
# functions), and file, group and record separator (U+001C to U+001E). The pattern begins with a character class, which
# `re` finds quickly.
LINE_BREAK = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029](?:(?<=\r)\n)?")
# A \r that ends a line alone.
RETURN = re.compile(rb"\r(?!\n)")
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# An escape sequence in a JSON string; group 1 is half of a surrogate pair without the other half.
ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.S
)
# byte order marks
UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class LineBatch:
    """Consecutive complete lines from a file; `first` is the number of the first line, counted from 1."""

    path: Path
    first: int
    lines: list[bytes]
    size: int  # [bytes]

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Return (line number, line) for each line."""
        return enumerate(self.lines, self.first)


def with_newlines(text: str) -> str:
    """Return a text with \\n for each of its line breaks."""
    return LINE_BREAK.sub("\n", text)


class _Returns(io.RawIOBase):
    """The content of a plain-text file with \\n for each \\r that is not part of \\r\\n."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        content = self._file.read1(len(view))
        size = len(content)
        # Whether a \r at the end is alone depends on the next byte.
        if content.endswith(b"\r"):
            content += self._file.peek(1)[:1]
        view[:size] = RETURN.sub(b"\n", content)[:size]
        return size


def lines_of_text(file: Any) -> io.BufferedReader:
    """Return a reader for a plain-text file, given as a buffered reader, whose lines all end with \\n or \\r\\n."""
    return io.BufferedReader(_Returns(file), CHUNK)


def path_list(paths: Path | Sequence[Path]) -> list[Path]:
    """Return one path or several as a list."""
    return [paths] if isinstance(paths, Path) else list(paths)


def read_batches(path: Path, size: int = BATCH) -> Iterator[LineBatch]:
    """Yield the lines of a file in batches of about `size` bytes.

    Plain text is split only between documents, unless a document is longer than LONGEST batches. In JSON lines, lone
    surrogates become U+FFFD; how many is printed at the end. Raises CourseError if the file is truncated or corrupt, or
    if a line is longer than LONGEST_LINE.
    """
    plain = inner_suffix(path) == ".txt"
    lines = list[bytes]()
    # Number of the first line in the batch, number of lines read, and size of the batch [bytes].
    first, count, batch_size = 1, 0, 0
    # Number of lone surrogates, and the line of the first one.
    replaced, first_replaced = 0, 0
    with open_binary(path) as file:
        reader = lines_of_text(file) if plain else file
        while line := reader.readline(LONGEST_LINE + 1):
            count += 1
            if len(line) > LONGEST_LINE:
                raise CourseError(f"{path}, line {count}: longer than {human_size(LONGEST_LINE)}")
            if not plain:
                line, surrogates = without_lone_surrogates(line)
                first_replaced = first_replaced or (count if surrogates else 0)
                replaced += surrogates
            lines.append(line)
            batch_size += len(line)
            may_end = not plain or line.isspace() or batch_size >= LONGEST * size
            if batch_size >= size and may_end:
                yield LineBatch(path, first, lines, batch_size)
                lines, first, batch_size = [], count + 1, 0
    if lines:
        yield LineBatch(path, first, lines, batch_size)
    if replaced:
        message = "{path}: {number:,} lone surrogates replaced by U+FFFD, the first one in line {line}"
        notify(tr(message, path=path, number=replaced, line=first_replaced))


def without_lone_surrogates(line: bytes) -> tuple[bytes, int]:
    """Replace lone surrogates such as \\ud800 in a JSON line by \\ufffd, and return their number, too.

    RFC 8259, section 8.2, allows them, but they are no characters. A pair, such as \\ud83d\\ude00, is one.
    """
    if not SURROGATE.search(line):
        return line, 0
    alone = sum(1 for escape in ESCAPE.finditer(line) if escape[1])
    return ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], line), alone


def read_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file, one document at a time."""
    for batch in read_batches(path):
        yield from texts(batch)


def sample_texts(path: Path, size: int = SAMPLE) -> list[str]:
    """Return about `size` bytes of the documents in an uncompressed JSONL file, from evenly spaced positions in it."""
    whole = path.stat().st_size
    if whole <= size:
        return list(read_texts(path))
    lines, read = list[bytes](), 0
    with open(path, "rb") as file:
        for part in range(SAMPLE_PARTS):
            position = whole * part // SAMPLE_PARTS
            # After a long line, the file may be beyond the next position already.
            if position > file.tell():
                file.seek(position - 1)
                # The rest of a line; nothing is lost if one begins at the position.
                file.readline()
            while read < size * (part + 1) // SAMPLE_PARTS and (line := file.readline()):
                lines.append(without_lone_surrogates(line)[0])
                read += len(line)
    return list(texts(LineBatch(path, 1, lines, read)))


def texts(batch: LineBatch) -> Iterator[str]:
    """Return the texts in a batch: one per JSON line, or one per block of lines in a plain .txt file."""
    if inner_suffix(batch.path) == ".txt":
        return _blocks(batch)
    return (document["text"] for _, document in json_objects(batch, "text"))


def json_objects(batch: LineBatch, *keys: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, JSON object) for each line that is not blank; every object has strings under `keys`.

    Raises CourseError with the file and line number for any other line.
    """
    for number, line in batch.numbered():
        if line.isspace():
            continue
        try:
            document: Any = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise CourseError(f"{batch.path}, line {number}: not readable as JSON: {error}") from None
        if not isinstance(document, dict) or not all(isinstance(document.get(key), str) for key in keys):
            wanted = " and ".join(f'"{key}"' for key in keys)
            message = f"expected an object with a string {wanted}, found {line[:60]!r}"
            raise CourseError(f"{batch.path}, line {number}: {message}")
        yield number, document


def _blocks(batch: LineBatch) -> Iterator[str]:
    block: list[str] = []
    for number, line in batch.numbered():
        try:
            decoded = line.decode("utf-8-sig" if number == 1 else "utf8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            where = f"{batch.path}, line {number}: not UTF-8 at byte {error.start} of the line"
            raise CourseError(f"{where}{encoding_hint(line)}") from None
        if decoded.strip():
            block.append(decoded)
        elif block:
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)


def encoding_hint(content: bytes) -> str:
    """Return the likely encoding of bytes that are not UTF-8, as the end of a message; "" if they are not Japanese."""
    # CP932 is Shift-JIS with the characters that Windows adds, such as ①.
    kana = {codec: len(KANA.findall(content.decode(codec, "ignore"))) for codec in ("CP932", "EUC-JP")}
    likely = "UTF-16" if content.startswith(UTF16) else max(kana, key=kana.__getitem__)
    return f"; likely {likely}, convert it with iconv -f {likely} -t UTF-8" if kana.get(likely, 1) else ""
