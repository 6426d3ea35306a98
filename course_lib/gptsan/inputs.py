"""What `course gptsan encode` reads: a list of files with classes, or files alone, in pieces of bounded size."""

import csv
import glob
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.documents import BATCH, Batch, read_batches
from course_lib.errors import CourseError, UsageError
from course_lib.files import require_file

HEADER = ["filename", "fileid"]


@dataclass(frozen=True)
class Document:
    """A file to encode; `label` is its class where it has one."""

    path: Path
    label: int | None = None


@dataclass(frozen=True)
class Piece:
    """Some lines of a document, about 1 MB (plain text without an empty line: 4 MB); `document` is its place in the list, `number` counts its pieces from 0."""

    document: int
    number: int
    batch: Batch

    def lines(self) -> list[str]:
        """The lines, whatever their ends. Raises CourseError for what is not UTF-8, and for a document without text."""
        path, decoded = self.batch.path, []
        for number, line in self.batch.numbered():
            try:
                decoded.append(line.decode("utf-8-sig" if number == 1 else "utf8"))
            except UnicodeDecodeError as error:
                raise CourseError(f"{path}, line {number}: not UTF-8 at byte {error.start} of the line") from None
        lines = list(io.StringIO("".join(decoded), newline=None))
        if self.number == 0 and not any(map(str.strip, lines)):
            raise CourseError(f"{path}: no text in it")
        return lines


def list_documents(inputs: str | Sequence[Path], d_spout: int) -> list[Document]:
    """The documents of a list with classes, of a pattern (sorted by name) or of given files. Raises CourseError, UsageError."""
    if isinstance(inputs, str) and inputs.endswith(".csv"):
        return _read_list(Path(inputs), d_spout)
    if isinstance(inputs, str):  # a pattern may be absolute, which Path.glob does not take
        paths = [path for path in map(Path, sorted(glob.glob(inputs, recursive=True))) if not path.is_dir()]  # noqa: PTH207
    else:
        paths = list(inputs)
    if not paths:
        raise UsageError(f"--input {inputs!r}: no such file; allowed: a list.csv, or a pattern such as 'texts/*.txt'")
    return [Document(require_file(path)) for path in paths]


def _read_list(path: Path, d_spout: int) -> list[Document]:
    """The rows of a CSV `filename,fileid`; file names are relative to its folder."""
    try:
        text = require_file(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise CourseError(f"{path}: not UTF-8 at byte {error.start}") from None
    first = text.partition("\n")[0].rstrip("\r")
    if first != ",".join(HEADER):
        raise CourseError(f"{path}, line 1: expected {','.join(HEADER)!r}, found {first[:60]!r}")
    rows, documents = csv.reader(io.StringIO(text)), dict[Path, Document]()
    try:
        for row in rows:
            if row and rows.line_num > 1:
                document = _read_row(row, path, rows.line_num, d_spout)
                if documents.setdefault(document.path.resolve(), document) is not document:
                    raise CourseError(f"{path}, line {rows.line_num}: {row[0]} is listed twice")
    except csv.Error as error:
        raise CourseError(f"{path}, line {rows.line_num}: {error}") from None
    if not documents:
        raise CourseError(f"{path}: lists no files")
    return list(documents.values())


def _read_row(row: Sequence[str], path: Path, line: int, d_spout: int) -> Document:
    where = f"{path}, line {line}"
    if len(row) != len(HEADER):
        raise CourseError(f"{where}: expected a file name and a class, found {len(row)} fields")
    try:
        document = Document(require_file(path.parent / row[0]), int(row[1]))
    except (CourseError, OSError) as error:  # OSError: a name the system does not take
        raise CourseError(f"{where}: {error}") from None
    except ValueError:
        raise CourseError(f"{where}: fileid {row[1]!r} is not an integer") from None
    if not 0 <= int(row[1]) < d_spout:
        raise CourseError(
            f"{where}: class {row[1]} is outside the spout: 0 to {d_spout - 1} are allowed (d_spout {d_spout})"
        )
    return document


def read_pieces(documents: Sequence[Document], order: Iterable[int]) -> Iterator[list[Piece]]:
    """The documents in an order, as pieces in groups of about 1 MB."""
    group: list[Piece] = []
    size = 0
    for document in order:
        for number, batch in enumerate(read_batches(documents[document].path)):
            group.append(Piece(document, number, batch))
            size += batch.size
            if size >= BATCH:
                yield group
                group, size = [], 0
    if group:
        yield group
