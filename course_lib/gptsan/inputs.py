"""Input files for `course gptsan encode`: a CSV list of files and classes, or plain files, read in bounded pieces."""

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
    """File to encode, with its class label, if any."""

    path: Path
    label: int | None = None


@dataclass(frozen=True)
class Piece:
    """Consecutive lines from a document, about 1 MB (up to 4 MB if plain text has no blank line)."""

    document: int  # index in the list of documents
    number: int  # index within the document, from 0
    batch: Batch

    def lines(self) -> list[str]:
        """Return the decoded lines. All types of line endings are recognized.

        Raises CourseError if a line is not UTF-8, or if the first piece of a document contains only whitespace.
        """
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
    """Return the documents to encode.

    Args:
        inputs: Path to a CSV list with class labels (ends in `.csv`), a glob pattern (files are sorted by name), or the
            files themselves.
        d_spout: Width of the spout; class numbers must be below it.

    Raises:
        CourseError: A file is missing or the CSV list is invalid.
        UsageError: `inputs` matches no file.
    """
    if isinstance(inputs, str) and inputs.endswith(".csv"):
        return _read_list(Path(inputs), d_spout)
    if isinstance(inputs, str):
        # Path.glob does not accept an absolute pattern.
        paths = [path for path in map(Path, sorted(glob.glob(inputs, recursive=True))) if not path.is_dir()]  # noqa: PTH207
    else:
        paths = list(inputs)
    if not paths:
        raise UsageError(f"--input {inputs!r}: no such file; allowed: a list.csv, or a pattern such as 'texts/*.txt'")
    return [Document(require_file(path)) for path in paths]


def _read_list(path: Path, d_spout: int) -> list[Document]:
    """Read a CSV list with the columns `filename,fileid`.

    File names are relative to the folder that contains the list.
    """
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
    if len(row) != len(HEADER):
        raise CourseError(f"{path}, line {line}: expected a file name and a class, found {len(row)} fields")
    try:
        document = Document(require_file(path.parent / row[0]), int(row[1]))
    # OSError means that the operating system does not allow this file name.
    except (CourseError, OSError) as error:
        raise CourseError(f"{path}, line {line}: {error}") from None
    except ValueError:
        raise CourseError(f"{path}, line {line}: fileid {row[1]!r} is not an integer") from None
    if not 0 <= int(row[1]) < d_spout:
        raise CourseError(
            f"{path}, line {line}: class {row[1]} is outside the spout: "
            f"0 to {d_spout - 1} are allowed (d_spout {d_spout})"
        )
    return document


def read_pieces(documents: Sequence[Document], order: Iterable[int]) -> Iterator[list[Piece]]:
    """Yield the pieces in groups of about 1 MB. `order` gives the indices of the documents in reading order."""
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
