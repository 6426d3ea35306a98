"""Input files for `course gptsan encode`, read in pieces of bounded size.

They are listed in a CSV file with their classes, or given by a pattern. As in the rest of the course, a .txt file is
plain text and any other file is JSON Lines (documents.py).
"""

import csv
import glob
import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from course_lib.documents import BATCH, LineBatch, read_batches, texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import inner_suffix, require_file

HEADER = ["filename", "fileid"]


class Source(NamedTuple):
    """File to encode, with the class label of its documents, if any. A .txt file is one document."""

    path: Path
    label: int | None = None


class Piece(NamedTuple):
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
    if not isinstance(inputs, str):
        return [Source(require_file(path)) for path in inputs]
    # Path.glob does not accept an absolute pattern.
    paths = map(Path, sorted(glob.glob(inputs, recursive=True)))  # noqa: PTH207
    sources = [Source(require_file(path)) for path in paths if not path.is_dir()]
    if not sources:
        raise UsageError(f"{inputs}: no such file; allowed: a list.csv, or a pattern such as 'texts/*.txt'")
    return sources


def _read_list(path: Path, d_spout: int) -> list[Source]:
    """Read a CSV list with the columns `filename,fileid`. File names are relative to the folder of the list."""
    sources: dict[Path, Source] = {}
    with open(require_file(path), encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        try:
            if (first := next(rows, [])) != HEADER:
                raise CourseError(f"expected {','.join(HEADER)!r}, found {','.join(first)[:60]!r}")
            for name, label in filter(None, rows):
                source = Source(require_file(path.parent / name), int(label))
                if not 0 <= int(label) < d_spout:
                    raise CourseError(
                        f"class {label} is outside the spout: 0 to {d_spout - 1} are allowed (d_spout {d_spout})"
                    )
                if sources.setdefault(source.path.resolve(), source) is not source:
                    raise CourseError(f"{name} is listed twice")
        # OSError means that the operating system does not allow this file name.
        except (CourseError, OSError, ValueError, csv.Error) as error:
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
        path, label = sources[index]
        for number, batch in enumerate(read_batches(path)):
            if _is_plain(path):
                group.append(Piece(index, number, label, batch))
            else:
                documents = [LineBatch(path, at, [line], len(line)) for at, line in batch.numbered() if line.strip()]
                order = rng.permutation(len(documents)).tolist()
                group += [Piece(next(numbers), 0, label, documents[place]) for place in order]
            size += batch.size
            if size >= BATCH:
                yield group
                group, size = [], 0
    if group:
        yield group


def _is_plain(path: Path) -> bool:
    return inner_suffix(path) == ".txt"
