"""Readers for documents: JSON Lines with a "text" (and optional "id" and "title"), or plain text.

Chapters exchange documents in this format. Files are read in batches of lines, so that memory use does not grow with
the file size and a batch is worth sending to a worker process.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from course_lib.errors import CourseError, notify
from course_lib.files import human_size, inner_suffix, open_binary
from course_lib.language.words import tr

# approximate batch size [bytes]
BATCH = 1 << 20
# A plain-text document longer than this [batches] is split into several documents.
LONGEST = 4
# Size of a sample of a file [bytes], and from how many places of the file it is taken.
SAMPLE = 1 << 20
PLACES = 64
# A line longer than this [bytes] is an error, because its words and ids use up to 100 times as much memory.
LONGEST_LINE = 16 << 20
KANA = re.compile("[ぁ-んァ-ヶ]")
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
    first, count, held = 1, 0, 0
    # Number of lone surrogates, and the line of the first one.
    replaced, at = 0, 0
    with open_binary(path) as file:
        while line := file.readline(LONGEST_LINE + 1):
            count += 1
            if len(line) > LONGEST_LINE:
                raise CourseError(f"{path}, line {count}: longer than {human_size(LONGEST_LINE)}")
            if not plain:
                line, surrogates = without_lone_surrogates(line)
                at = at or (count if surrogates else 0)
                replaced += surrogates
            lines.append(line)
            held += len(line)
            if held >= size and (not plain or line.isspace() or held >= LONGEST * size):
                yield LineBatch(path, first, lines, held)
                lines, first, held = [], count + 1, 0
    if lines:
        yield LineBatch(path, first, lines, held)
    if replaced:
        message = "{path}: {number:,} lone surrogates replaced by U+FFFD, the first one in line {line}"
        notify(tr(message, path=path, number=replaced, line=at))


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
    """Return about `size` bytes of the documents in an uncompressed JSONL file, from evenly spaced places of it."""
    whole = path.stat().st_size
    if whole <= size:
        return list(read_texts(path))
    lines, held = list[bytes](), 0
    with open(path, "rb") as file:
        for number in range(PLACES):
            # After a long line, the file may be beyond the next place already.
            if (place := whole * number // PLACES) > file.tell():
                file.seek(place - 1)
                file.readline()
            while held < size * (number + 1) // PLACES and (line := file.readline()):
                lines.append(without_lone_surrogates(line)[0])
                held += len(line)
    return list(texts(LineBatch(path, 1, lines, held)))


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
