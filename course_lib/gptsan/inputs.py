"""Documents for `course gptsan encode`: files with or without a class, read in groups of about 1 MB.

A .txt file is one document; any other file is JSON Lines with a document a line (documents.py).
"""

import csv
import glob
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from course_lib.documents import BATCH, read_batches, texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import inner_suffix, require_file

HEADER = ["filename", "fileid"]


class Source(NamedTuple):
    """File to encode, with the class label of its documents, if any."""

    path: Path
    label: int | None = None


class Document(NamedTuple):
    """A document, or a part of a .txt file of more than 4 MB."""

    number: int
    label: int | None
    text: str


def list_documents(inputs: str | Sequence[Path], d_spout: int) -> list[Source]:
    """Return the files to encode, given a CSV list with classes below `d_spout`, a glob pattern, or the files."""
    if not isinstance(inputs, str):
        return [Source(require_file(path)) for path in inputs]
    if inputs.endswith(".csv"):
        return _read_list(Path(inputs), d_spout)
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
                if sources.setdefault(source.path.resolve(), source) is not source:
                    raise CourseError(f"{name} is listed twice")
                if not 0 <= int(label) < d_spout:
                    raise CourseError(f"class {label} is outside the spout: 0 to {d_spout - 1} are allowed")
        except (CourseError, ValueError, csv.Error) as error:
            raise CourseError(f"{path}, line {rows.line_num}: {error}") from None
    if not sources:
        raise CourseError(f"{path}: lists no files")
    return list(sources.values())


def read_documents(sources: Sequence[Source], seed: int) -> Iterator[tuple[list[Document], int]]:
    """Yield the documents of the files in groups of about 1 MB, each with its size in bytes.

    The files are shuffled, and so are the documents within each batch of about 1 MB from a .jsonl file. A .txt file has
    the index of its source as its number; documents from .jsonl files have the numbers after those.
    """
    rng = np.random.default_rng(seed)
    numbers = itertools.count(len(sources))
    group: list[Document] = []
    size = 0
    for index in rng.permutation(len(sources)).tolist():
        path, label = sources[index]
        for batch in read_batches(path):
            if inner_suffix(path) == ".txt":
                group.append(Document(index, label, "\n\n".join(texts(batch))))
            else:
                found = list(texts(batch))
                order = rng.permutation(len(found)).tolist()
                group += [Document(next(numbers), label, found[place]) for place in order]
            size += batch.size
            if size >= BATCH:
                yield group, size
                group, size = [], 0
    if group:
        yield group, size
