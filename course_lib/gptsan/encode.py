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
from time import perf_counter

import numpy as np

from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_file, require_other, sha256
from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.gptsan.examples import FEATURES, REPORT, Array, ExampleWriter
from course_lib.gptsan.inputs import Document, Piece, list_documents, read_pieces
from course_lib.gptsan.layouts import Marks, pack
from course_lib.gptsan.swe import FILES, SubwordEncoding, load
from course_lib.gptsan.tfrecord import write_examples
from course_lib.language.words import tr
from course_lib.parallel import ordered_map
from course_lib.progress import progress


@dataclass
class EncodeReport:
    """Counts from one encoding run."""

    documents: int = 0
    examples: int = 0
    tokens: int = 0  # in the examples, without padding
    largest_id: int = 0
    left_out_documents: int = 0  # documents that yield no example: they end within the encoder part
    # Tokens in no example: from these documents, the ends of others, and lines cut off by the original layout.
    left_out_tokens: int = 0
    classes: dict[int, int] | None = None  # class → number of examples; None: no classes, `i` is the example index
    bytes_read: int = 0
    seconds: float = 0.0

    def summary(self) -> str:
        """Return a one-line summary."""
        sizes = {"examples": self.examples, "documents": self.documents, "tokens": self.tokens}
        if self.classes is None:
            parts = [tr("{examples} examples from {documents} documents, {tokens} tokens", **sizes)]
        else:
            sizes |= {"classes": len(self.classes)}
            parts = [
                tr("{examples} examples in {classes} classes from {documents} documents, {tokens} tokens", **sizes)
            ]
        if self.left_out_tokens and self.left_out_documents:
            parts.append(
                tr(
                    "left out: {documents} documents too short for the encoder part, {tokens} tokens in all",
                    documents=self.left_out_documents,
                    tokens=self.left_out_tokens,
                )
            )
        elif self.left_out_tokens:
            parts.append(tr("left out: {tokens} tokens in all", tokens=self.left_out_tokens))
        rate = self.bytes_read / max(self.seconds, 1e-9) / 1e6
        return "; ".join([*parts, f"{self.seconds:.1f} s ({rate:.2f} MB/s)"])


def encode(
    inputs: str | Sequence[Path], tokenizer: Path, folder: Path, settings: EncodeConfig, workers: int = 1
) -> EncodeReport:
    """Encode documents and write them to `folder`. If encoding fails, existing output there is left unchanged.

    `inputs` is the path to a CSV list with class labels, a file pattern, or a list of paths (see `list_documents`).

    Raises CourseError if the CSV list is invalid or `encode_documents` fails, and UsageError if no file matches the
    pattern, or if the output folder contains other files or an input file.
    """
    documents = list_documents(inputs, settings.d_spout)
    for name in FILES:
        require_file(tokenizer / name)
    for path in (*(document.path for document in documents), tokenizer):
        require_other(path, folder)
    with atomic_folder(folder, ours=(folder / REPORT).is_file()) as temporary:
        return encode_documents(documents, tokenizer, temporary, settings, workers)


def encode_documents(
    documents: Sequence[Document], tokenizer: Path, folder: Path, settings: EncodeConfig, workers: int
) -> EncodeReport:
    """Encode documents as training examples in an existing folder.

    The output is byte-identical for any number of workers.

    Raises CourseError if a tokenizer file is missing or damaged, a document contains no text or is not UTF-8, or no
    document is long enough.
    """
    started = perf_counter()
    checksums = {name: sha256(require_file(tokenizer / name)) for name in FILES}
    # The folder may contain a different tokenizer than in an earlier call.
    _loaded.cache_clear()
    # Forked workers inherit the loaded tokenizer.
    _loaded(tokenizer, settings.original_layout)
    report = _write_arrays(folder, documents, tokenizer, settings, workers)
    if not report.examples:
        raise CourseError(
            f"no example: every document ends within the encoder part (mode {settings.mode}, "
            f"{report.left_out_tokens} tokens left out); "
            f"try longer documents or a num_context below {settings.num_context}"
        )
    shards = min(settings.shards, report.examples)
    write_shard = partial(_write_shard, folder, settings.mode, shards)
    with progress(report.examples, "examples", "writing TFRecords") as bar:
        for count in ordered_map(write_shard, range(shards), workers):
            bar.update(count)
    content = {**dataclasses.asdict(settings), **dataclasses.asdict(report), "tokenizer": checksums}
    del content["seconds"]
    (folder / REPORT).write_text(json.dumps(content, indent=2) + "\n", encoding="utf8")
    report.seconds = perf_counter() - started
    return report


def _write_arrays(
    folder: Path, documents: Sequence[Document], tokenizer: Path, settings: EncodeConfig, workers: int
) -> EncodeReport:
    """Write the .npy files and count their contents.

    The documents are shuffled here because the tanreinama/GPTSAN training script reads its files in order, without
    shuffling.
    """
    order = np.random.default_rng(settings.seed).permutation(len(documents)).tolist()
    pieces = read_pieces(documents, order)
    report, classes, served = EncodeReport(len(documents)), Counter[int](), set[int]()
    nottoken = _loaded(tokenizer, settings.original_layout)[1].nottoken
    size = sum(document.path.stat().st_size for document in documents)
    with ExampleWriter(folder, settings.num_context) as writer, progress(size, "B", "encoding") as bar:
        for group in ordered_map(partial(_encode_group, tokenizer, settings), pieces, workers):
            for part in group:
                count, label = len(part.x), documents[part.document].label
                numbers = np.arange(writer.rows, writer.rows + count) if label is None else np.full(count, label)
                source = np.full(count, part.document)
                writer.append(x=part.x, y=part.y, i=numbers, num_input=part.num_input, document=source)
                if count:
                    served.add(part.document)
                    if label is not None:
                        classes[label] += count
                report.tokens += int(np.count_nonzero(part.x != nottoken))
                report.largest_id = max(report.largest_id, int(part.x.max(initial=0)), int(part.y.max(initial=0)))
                report.left_out_tokens += part.left_out
                report.bytes_read += part.size
                bar.update(part.size)
    report.examples = writer.rows
    report.left_out_documents = len(documents) - len(served)
    report.classes = dict(sorted(classes.items())) if documents[0].label is not None else None
    return report


@lru_cache(maxsize=1)
def _loaded(tokenizer: Path, original: bool) -> tuple[SubwordEncoding, Marks]:
    """Return the tokenizer in a folder and its special token ids. Each process loads them once, on first use."""
    encoding = load(*(tokenizer / name for name in FILES))
    return encoding, Marks.of(encoding, original)


@dataclass(frozen=True)
class _Encoded:
    """Examples from one piece of a document."""

    document: int
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
        encoded.append(_Encoded(piece.document, x, y, num_input, left_out, piece.batch.size))
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
