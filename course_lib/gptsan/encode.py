"""Encoding of texts as training examples, in parallel and in a random order determined by the seed.

Output files:

    x.npy, y.npy, i.npy, num_input.npy,
    document.npy                          arrays for training (examples.py)
    <mode>_<shard:04d>.tfrecord           for the tanreinama/GPTSAN tools; example k is in shard k mod shards
    encoding.json                         settings, counts, classes, checksums of the tokenizer files

layouts.py defines the layout of an example. Memory use does not grow with the corpus.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_file, require_other, sha256
from course_lib.gptsan.config import EncodeConfig
from course_lib.gptsan.examples import ARRAYS, FEATURES, REPORT, Array, ExampleWriter
from course_lib.gptsan.inputs import Piece, Source, list_documents, read_pieces
from course_lib.gptsan.layouts import Marks, pack
from course_lib.gptsan.swe import FILES, SubwordEncoding, load
from course_lib.gptsan.tfrecord import write_examples
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map


def encode(
    inputs: str | Sequence[Path], tokenizer: Path, folder: Path, settings: EncodeConfig, workers: int = 1
) -> dict[str, Any]:
    """Encode documents and write them to `folder`; return the counts as `encode_documents` does.

    `inputs` is the path to a CSV list with class labels, a file pattern, or a list of paths (see `list_documents`).
    """
    sources = list_documents(inputs, settings.d_spout)
    for path in (*(source.path for source in sources), tokenizer):
        require_other(path, folder)
    with atomic_folder(folder, ours=(folder / REPORT).is_file()) as temporary:
        return encode_documents(sources, tokenizer, temporary, settings, workers)


def encode_documents(
    sources: Sequence[Source], tokenizer: Path, folder: Path, settings: EncodeConfig, workers: int
) -> dict[str, Any]:
    """Encode documents as training examples in an existing folder, and return the counts in encoding.json.

    It is byte-identical for any number of workers, and in random order for training scripts that do not shuffle.
    """
    checksums = {name: sha256(require_file(tokenizer / name)) for name in FILES}
    # The folder may contain a different tokenizer than in an earlier call.
    _loaded.cache_clear()
    # Forked workers inherit the loaded tokenizer.
    _loaded(tokenizer, settings.original_layout)
    pieces = read_pieces(sources, settings.seed)
    classed = sources[0].label is not None
    counts, classes, largest = Counter[str](), Counter[int](), 0
    size = sum(source.path.stat().st_size for source in sources)
    with ExampleWriter(folder, settings.num_context) as writer, progress(size, "B", "encoding") as bar:
        for columns, some in ordered_map(partial(_encode_group, tokenizer, settings), pieces, workers):
            if classed:
                classes.update(columns["i"].tolist())
            else:
                columns["i"] = np.arange(writer.rows, writer.rows + len(columns["x"]))
            writer.append(**columns)
            counts.update(some)
            largest = max(largest, int(columns["x"].max(initial=0)), int(columns["y"].max(initial=0)))
            bar.update(some["bytes_read"])
    report: dict[str, Any] = {
        "documents": counts["documents"],
        "examples": writer.rows,
        # In the examples, without padding.
        "tokens": counts["tokens"],
        "largest_id": largest,
        # Documents without an example: they end within the encoder part.
        "left_out_documents": counts["documents"] - len(np.unique(np.load(folder / "document.npy"))),
        # Tokens in no example: from these documents, the ends of others, and lines cut off by the original layout.
        "left_out_tokens": counts["left_out_tokens"],
        # Class → number of examples. None: no classes, `i` is the index of the example.
        "classes": dict(sorted(classes.items())) if classed else None,
        "bytes_read": counts["bytes_read"],
    }
    if not report["examples"]:
        raise CourseError(
            f"no example: every document ends within the encoder part (mode {settings.mode}, "
            f"{report['left_out_tokens']} tokens left out); "
            f"try longer documents or a num_context below {settings.num_context}"
        )
    shards = min(settings.shards, report["examples"])
    write_shard = partial(_write_shard, folder, settings.mode, shards)
    with progress(report["examples"], "examples", "writing TFRecords") as bar:
        for count in ordered_map(write_shard, range(shards), workers):
            bar.update(count)
    content = dataclasses.asdict(settings) | report | {"tokenizer": checksums}
    (folder / REPORT).write_text(json.dumps(content, indent=2) + "\n", encoding="utf8")
    return report


@lru_cache(maxsize=1)
def _loaded(tokenizer: Path, original: bool) -> tuple[SubwordEncoding, Marks]:
    """Return the tokenizer in a folder and its special token ids. Each process loads them once, on first use."""
    encoding = load(*(tokenizer / name for name in FILES))
    return encoding, Marks.of(encoding, original)


def _encode_group(
    tokenizer: Path, settings: EncodeConfig, pieces: list[Piece]
) -> tuple[dict[str, Array], dict[str, int]]:
    """Return the examples from some pieces, as arrays by name, and counts. `i` is -1 without classes."""
    encoding, marks = _loaded(tokenizer, settings.original_layout)
    texts = [piece.lines() for piece in pieces]
    columns: dict[str, list[Any]] = {name: [] for name in ARRAYS}
    left_out_tokens = 0
    for index, (piece, lines) in enumerate(zip(pieces, texts, strict=True)):
        rng = np.random.default_rng([settings.seed, piece.document, piece.number])
        examples, left_out = pack(lines, encoding, marks, settings, rng, partial(_another_line, texts, index, rng))
        left_out_tokens += left_out
        label = -1 if piece.label is None else piece.label
        for example in examples:
            row = vars(example) | {"i": label, "document": piece.document}
            for name, values in columns.items():
                values.append(row[name])
    shape = len(columns["i"]), settings.num_context
    arrays = {name: np.array(values, np.int32) for name, values in columns.items()}
    arrays |= {name: arrays[name].reshape(shape) for name in ("x", "y")}
    return arrays, {
        "documents": sum(piece.number == 0 for piece in pieces),
        "tokens": int(np.count_nonzero(arrays["x"] != marks.nottoken)),
        "left_out_tokens": left_out_tokens,
        "bytes_read": sum(piece.batch.size for piece in pieces),
    }


def _another_line(texts: Sequence[Sequence[str]], own: int, rng: np.random.Generator) -> str:
    """Return a random line from another piece in the group, or from the same piece if the group has only one."""
    index = int(rng.integers(max(len(texts) - 1, 1)))
    text = texts[index + (index >= own and len(texts) > 1)]
    return text[int(rng.integers(len(text)))]


def _write_shard(folder: Path, mode: str, shards: int, shard: int) -> int:
    """Write one TFRecord file from the .npy files and return its number of examples."""
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in FEATURES}
    rows = range(shard, len(arrays["i"]), shards)
    features = ({name: np.atleast_1d(array[row]) for name, array in arrays.items()} for row in rows)
    with open(folder / f"{mode}_{shard:04d}.tfrecord", "wb") as file:
        write_examples(file, features)
    return len(rows)
