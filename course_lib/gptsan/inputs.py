"""Input files for `course gptsan encode`, read in pieces of bounded size.

They are listed in a CSV file with their classes, or given by a pattern. As in the rest of the course, a .txt file is
plain text and any other file is JSON Lines (documents.py).
"""

import csv
import glob
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from course_lib.documents import BATCH, LineBatch, read_batches, texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import inner_suffix, require_file

HEADER = ["filename", "fileid"]


@dataclass(frozen=True)
class Source:
    """File to encode, with the class label of its documents, if any. A .txt file is one document."""

    path: Path
    label: int | None = None


@dataclass(frozen=True)
class Piece:
    """A document from a .jsonl file, or consecutive lines from a .txt file: about 1 MB, 4 MB without a blank line."""

    document: int  # index of the document
    number: int  # index within the document, from 0
    label: int | None
    batch: LineBatch

    def lines(self) -> list[str]:
        """Return the decoded lines. All types of line endings are recognized."""
        path, text = self.batch.path, ""
        for number, line in self.batch.numbered() if _is_plain(path) else ():
            try:
                text += line.decode("utf-8-sig" if number == 1 else "utf8")
            except UnicodeDecodeError as error:
                raise CourseError(f"{path}, line {number}: not UTF-8 at byte {error.start} of the line") from None
        lines = list(io.StringIO(text if _is_plain(path) else "".join(texts(self.batch)), newline=None))
        if self.number == 0 and not any(map(str.strip, lines)):
            raise CourseError(f"{path}, line {self.batch.first}: no text in it")
        return lines


def list_documents(inputs: str | Sequence[Path], d_spout: int) -> list[Source]:
    """Return the files to encode.

    Args:
        inputs: Path to a CSV list with class labels (ends in `.csv`), a glob pattern (files are sorted by name), or the
            files themselves.
        d_spout: Width of the spout; class numbers must be below it.
    """
    if isinstance(inputs, str) and inputs.endswith(".csv"):
        return _read_list(Path(inputs), d_spout)
    # Path.glob does not accept an absolute pattern.
    paths = map(Path, sorted(glob.glob(inputs, recursive=True))) if isinstance(inputs, str) else inputs  # noqa: PTH207
    sources = [Source(require_file(path)) for path in paths if not (isinstance(inputs, str) and path.is_dir())]
    if not sources:
        raise UsageError(f"{inputs}: no such file; allowed: a list.csv, or a pattern such as 'texts/*.txt'")
    return sources


def _read_list(path: Path, d_spout: int) -> list[Source]:
    """Read a CSV list with the columns `filename,fileid`. File names are relative to the folder of the list."""
    try:
        text = require_file(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise CourseError(f"{path}: not UTF-8 at byte {error.start}") from None
    rows, sources = csv.reader(io.StringIO(text)), dict[Path, Source]()
    try:
        if (first := next(rows, [])) != HEADER:
            raise CourseError(f"{path}, line 1: expected {','.join(HEADER)!r}, found {','.join(first)[:60]!r}")
        for row in filter(None, rows):
            try:
                name, label = row
                source = Source(require_file(path.parent / name), int(label))
            # OSError means that the operating system does not allow this file name.
            except (CourseError, OSError, ValueError) as error:
                raise CourseError(f"{path}, line {rows.line_num}: {error}") from None
            if not 0 <= int(label) < d_spout:
                raise CourseError(
                    f"{path}, line {rows.line_num}: class {label} is outside the spout: "
                    f"0 to {d_spout - 1} are allowed (d_spout {d_spout})"
                )
            if sources.setdefault(source.path.resolve(), source) is not source:
                raise CourseError(f"{path}, line {rows.line_num}: {name} is listed twice")
    except csv.Error as error:
        raise CourseError(f"{path}, line {rows.line_num}: {error}") from None
    if not sources:
        raise CourseError(f"{path}: lists no files")
    return list(sources.values())


def read_pieces(sources: Sequence[Source], seed: int) -> Iterator[list[Piece]]:
    """Yield the documents of the files in groups of about 1 MB.

    The files are shuffled, and so are the documents within each batch of about 1 MB from a .jsonl file. A .txt file has
    the index of its source as its document index; documents from .jsonl files have the indices after those.
    """
    rng = np.random.default_rng(seed)
    numbers = itertools.count(len(sources))
    group: list[Piece] = []
    size = 0
    for index in rng.permutation(len(sources)).tolist():
        source = sources[index]
        for number, batch in enumerate(read_batches(source.path)):
            if _is_plain(source.path):
                group.append(Piece(index, number, source.label, batch))
            else:
                documents = [(first, line) for first, line in batch.numbered() if not line.isspace()]
                for place in rng.permutation(len(documents)).tolist():
                    first, line = documents[place]
                    own = LineBatch(source.path, first, [line], len(line))
                    group.append(Piece(next(numbers), 0, source.label, own))
            size += batch.size
            if size >= BATCH:
                yield group
                group, size = [], 0
    if group:
        yield group


def _is_plain(path: Path) -> bool:
    return inner_suffix(path) == ".txt"
