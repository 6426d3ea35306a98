"""Encoding of texts as training examples, in parallel and in a random order determined by the seed.

A .txt file is one document; any other file is JSON Lines with a document a line (documents.py). Documents may have
classes. They are read in groups of about 1 MB, so memory use does not grow with the corpus. The output is a folder of
examples (see examples.py); layouts.py defines an example.
"""

import csv
import dataclasses
import glob
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from course_lib.documents import BATCH, read_batches, texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, inner_suffix, require_file, require_other, sha256, write_json
from course_lib.gptsan.config import EncodeConfig
from course_lib.gptsan.examples import ARRAYS, REPORT, Array, ExampleWriter
from course_lib.gptsan.layouts import SpecialIds, pack
from course_lib.gptsan.swe import FILES, SubwordEncoding, load
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map

# First line of a CSV list of files.
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


def encode(
    inputs: str | Sequence[Path], tokenizer: Path, folder: Path, settings: EncodeConfig, workers: int = 1
) -> dict[str, Any]:
    """Encode the documents of `list_documents` and write them to `folder`; return what `encode_documents` does."""
    sources = list_documents(inputs, settings.d_spout)
    for path in (*(source.path for source in sources), tokenizer):
        require_other(path, folder)
    with atomic_folder(folder) as temporary:
        return encode_documents(sources, tokenizer, temporary, settings, workers)


def encode_documents(
    sources: Sequence[Source], tokenizer: Path, folder: Path, settings: EncodeConfig, workers: int
) -> dict[str, Any]:
    """Encode documents as training examples in an existing folder, and return the counts in encoding.json.

    It is byte-identical for any number of workers. Documents without text have no example.
    """
    checksums = {name: sha256(require_file(tokenizer / name)) for name in FILES}
    # The folder may contain a different tokenizer than in an earlier call.
    _loaded.cache_clear()
    nottoken = _loaded(tokenizer)[1].nottoken
    classed = sources[0].label is not None
    classes, tokens, largest = Counter[int](), 0, 0
    size = sum(source.path.stat().st_size for source in sources)
    groups = read_documents(sources, settings.seed)
    with ExampleWriter(folder, settings.num_context) as writer, progress(size, "B", "encoding") as bar:
        for columns, read in ordered_map(partial(_encode_group, tokenizer, settings.num_context), groups, workers):
            if classed:
                classes.update(columns["i"].tolist())
            else:
                columns["i"] = np.arange(writer.rows, writer.rows + len(columns["x"]))
            writer.append(**columns)
            tokens += int(np.count_nonzero(columns["x"] != nottoken))
            largest = max(largest, int(columns["x"].max(initial=0)), int(columns["y"].max(initial=0)))
            bar.update(read)
    if not writer.rows:
        raise CourseError(f"{sources[0].path}: no text in the documents")
    report: dict[str, Any] = {
        "documents": len(np.unique(np.load(folder / "document.npy"))),
        "examples": writer.rows,
        # In the examples, without padding.
        "tokens": tokens,
        "largest_id": largest,
        # Class → number of examples. None: no classes, `i` is the index of the example.
        "classes": dict(sorted(classes.items())) if classed else None,
    }
    write_json(folder / REPORT, dataclasses.asdict(settings) | report | {"tokenizer": checksums})
    return report


@lru_cache(maxsize=1)
def _loaded(tokenizer: Path) -> tuple[SubwordEncoding, SpecialIds]:
    """Return the tokenizer in a folder and its special token ids. Each process loads them once, on first use."""
    encoding = load(*(tokenizer / name for name in FILES))
    return encoding, SpecialIds.of(encoding)


def _encode_group(tokenizer: Path, context: int, group: tuple[list[Document], int]) -> tuple[dict[str, Array], int]:
    """Return the examples from a group of documents, as arrays by name, and its size. `i` is -1 without classes."""
    documents, size = group
    rows = [
        (x, y, -1 if label is None else label, number)
        for number, label, text in documents
        if text.strip()
        for x, y in pack(text.splitlines(), *_loaded(tokenizer), context)
    ]
    columns = zip(*rows, strict=True) if rows else ([np.empty((0, context))] * 2 + [np.empty(0)] * 2)
    return {name: np.array(values, np.int32) for name, values in zip(ARRAYS, columns, strict=True)}, size


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
                contents = list(texts(batch))
                order = rng.permutation(len(contents)).tolist()
                group += [Document(next(numbers), label, contents[position]) for position in order]
            size += batch.size
            if size >= BATCH:
                yield group, size
                group, size = [], 0
    if group:
        yield group, size
