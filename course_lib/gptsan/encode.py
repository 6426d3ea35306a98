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
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_file, require_other, sha256
from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.gptsan.examples import FEATURES, REPORT, Array, ExampleWriter
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

    The output is byte-identical for any number of workers.
    """
    checksums = {name: sha256(require_file(tokenizer / name)) for name in FILES}
    # The folder may contain a different tokenizer than in an earlier call.
    _loaded.cache_clear()
    # Forked workers inherit the loaded tokenizer.
    _loaded(tokenizer, settings.original_layout)
    report = _write_arrays(folder, sources, tokenizer, settings, workers)
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


def _write_arrays(
    folder: Path, sources: Sequence[Source], tokenizer: Path, settings: EncodeConfig, workers: int
) -> dict[str, Any]:
    """Write the .npy files and return the counts.

    The documents are shuffled here because the tanreinama/GPTSAN training script reads its files in order, without
    shuffling.
    """
    pieces = read_pieces(sources, settings.seed)
    counts, classes, largest = Counter[str](), Counter[int](), 0
    # The pieces of a document follow one another.
    current, served = -1, False
    nottoken = _loaded(tokenizer, settings.original_layout)[1].nottoken
    size = sum(source.path.stat().st_size for source in sources)
    with ExampleWriter(folder, settings.num_context) as writer, progress(size, "B", "encoding") as bar:
        for group in ordered_map(partial(_encode_group, tokenizer, settings), pieces, workers):
            for part in group:
                if part.document != current:
                    current, served = part.document, False
                    counts["documents"] += 1
                count = len(part.x)
                if count and not served:
                    served = True
                    counts["served"] += 1
                numbers = np.arange(writer.rows, writer.rows + count)
                labels = numbers if part.label is None else np.full(count, part.label)
                source = np.full(count, part.document)
                writer.append(x=part.x, y=part.y, i=labels, num_input=part.num_input, document=source)
                if count and part.label is not None:
                    classes[part.label] += count
                counts["tokens"] += int(np.count_nonzero(part.x != nottoken))
                counts["left_out"] += part.left_out
                counts["bytes"] += part.size
                largest = max(largest, int(part.x.max(initial=0)), int(part.y.max(initial=0)))
                bar.update(part.size)
    return {
        "documents": counts["documents"],
        "examples": writer.rows,
        # In the examples, without padding.
        "tokens": counts["tokens"],
        "largest_id": largest,
        # Documents without an example: they end within the encoder part.
        "left_out_documents": counts["documents"] - counts["served"],
        # Tokens in no example: from these documents, the ends of others, and lines cut off by the original layout.
        "left_out_tokens": counts["left_out"],
        # Class → number of examples. None: no classes, `i` is the index of the example.
        "classes": dict(sorted(classes.items())) if sources[0].label is not None else None,
        "bytes_read": counts["bytes"],
    }


@lru_cache(maxsize=1)
def _loaded(tokenizer: Path, original: bool) -> tuple[SubwordEncoding, Marks]:
    """Return the tokenizer in a folder and its special token ids. Each process loads them once, on first use."""
    encoding = load(*(tokenizer / name for name in FILES))
    return encoding, Marks.of(encoding, original)


@dataclass(frozen=True)
class _Encoded:
    """Examples from one piece of a document."""

    document: int
    label: int | None
    x: Array
    y: Array
    num_input: Array
    left_out: int  # tokens
    size: int  # bytes read


def _encode_group(tokenizer: Path, settings: EncodeConfig, pieces: list[Piece]) -> list[_Encoded]:
    encoding, marks = _loaded(tokenizer, settings.original_layout)
    texts = [piece.lines() for piece in pieces]
    encoded = []
    for index, (piece, lines) in enumerate(zip(pieces, texts, strict=True)):
        rng = np.random.default_rng([settings.seed, piece.document, piece.number])
        another = partial(_another_line, texts, index, rng)
        examples, left_out = pack(lines, encoding, marks, settings, rng, another)
        shape = (len(examples), settings.num_context)
        x = np.array([example.x for example in examples], np.int32).reshape(shape)
        y = np.array([example.y for example in examples], np.int32).reshape(shape)
        num_input = np.array([example.num_input for example in examples], np.int32)
        encoded.append(_Encoded(piece.document, piece.label, x, y, num_input, left_out, piece.batch.size))
    return encoded


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
