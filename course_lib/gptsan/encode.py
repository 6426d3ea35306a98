"""Encoding of texts as training examples, in parallel and in a random order determined by the seed.

The output is a folder of examples (see examples.py); layouts.py defines an example. Memory use does not grow with the
corpus.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_file, require_other, sha256, write_json
from course_lib.gptsan.config import EncodeConfig
from course_lib.gptsan.examples import ARRAYS, REPORT, Array, ExampleWriter
from course_lib.gptsan.inputs import Document, Source, list_documents, read_documents
from course_lib.gptsan.layouts import Marks, pack
from course_lib.gptsan.swe import FILES, SubwordEncoding, load
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map


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
def _loaded(tokenizer: Path) -> tuple[SubwordEncoding, Marks]:
    """Return the tokenizer in a folder and its special token ids. Each process loads them once, on first use."""
    encoding = load(*(tokenizer / name for name in FILES))
    return encoding, Marks.of(encoding)


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
