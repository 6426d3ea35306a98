"""Texts to training examples on disk: what `course gptsan encode` does, in parallel, in an order drawn from the seed.

    x.npy, y.npy, i.npy, num_input.npy    what training reads (examples.py)
    <mode>_<process:04d>.tfrecord         the same for the original's tools: example k is in file k mod shards
    encoding.json                         settings, counts, classes, checksums of the tokenizer

The layout of an example is layouts.py's. Memory does not grow with the corpus.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_file, require_other, sha256
from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.gptsan.examples import ARRAYS, REPORT, ExampleWriter
from course_lib.gptsan.inputs import Document, Piece, list_documents, read_pieces
from course_lib.gptsan.layouts import Marks, pack
from course_lib.gptsan.swe import SubwordEncoding, load
from course_lib.gptsan.tfrecord import write_examples
from course_lib.parallel import ordered_map
from course_lib.progress import progress

TOKENIZER_FILES = ("vocab.txt", "emoji.json")

Array = npt.NDArray[Any]


@dataclass
class EncodeReport:
    """What one run did."""

    documents: int = 0
    examples: int = 0
    tokens: int = 0  # in examples, padding apart
    largest_id: int = 0
    left_out_documents: int = 0  # without an example: they end within the encoder part
    left_out_tokens: int = 0  # of these, of other ends of documents, and of lines the original layout cuts
    classes: dict[int, int] | None = None  # examples of each; None: `i` is a running number
    bytes_read: int = 0
    seconds: float = 0.0

    def summary(self) -> str:
        """One line for the terminal."""
        classes = "" if self.classes is None else f" in {len(self.classes)} classes"
        short = (
            f"{self.left_out_documents} documents too short for the encoder part, " if self.left_out_documents else ""
        )
        left_out = f"; left out: {short}{self.left_out_tokens} tokens in all" if self.left_out_tokens else ""
        rate = self.bytes_read / max(self.seconds, 1e-9) / 1e6
        return (
            f"{self.examples} examples{classes} from {self.documents} documents, {self.tokens} tokens{left_out}; "
            f"{self.seconds:.1f} s ({rate:.2f} MB/s)"
        )


def encode(
    inputs: str | Sequence[Path], tokenizer: Path, folder: Path, settings: EncodeConfig, workers: int = 1
) -> EncodeReport:
    """Writes the examples of a list with classes (list.csv), of the files that match a pattern, or of given files.

    The same bytes for any number of workers. Raises CourseError naming file and line of what is missing, empty, not UTF-8 or of an
    impossible class, UsageError for a folder that holds other files; an earlier product stays as it was then.
    """
    started = perf_counter()
    documents = list_documents(inputs, settings.d_spout)
    checksums = {name: sha256(require_file(tokenizer / name)) for name in TOKENIZER_FILES}
    for path in (*(document.path for document in documents), tokenizer):
        require_other(path, folder)
    _loaded.cache_clear()  # the folder may hold another tokenizer now
    _loaded(tokenizer, settings.original_layout)  # copied workers have it already
    with atomic_folder(folder, ours=(folder / REPORT).is_file()) as place:
        report = _write_arrays(place, documents, tokenizer, settings, workers)
        if not report.examples:
            raise CourseError(
                f"no example: every document ends within the encoder part (mode {settings.mode}, {report.left_out_tokens} tokens "
                f"left out); try longer documents or a num_context below {settings.num_context}"
            )
        _write_tfrecords(place, report.examples, settings, workers)
        kept = {**dataclasses.asdict(settings), **dataclasses.asdict(report), "tokenizer": checksums}
        del kept["seconds"]
        (place / REPORT).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf8")
    report.seconds = perf_counter() - started
    return report


def _write_arrays(
    place: Path, documents: Sequence[Document], tokenizer: Path, settings: EncodeConfig, workers: int
) -> EncodeReport:
    """The .npy files. The documents are shuffled, as the original's training reads its files from end to end."""
    order = np.random.default_rng(settings.seed).permutation(len(documents)).tolist()
    pieces = read_pieces(documents, order)
    report, classes, served = EncodeReport(len(documents)), Counter[int](), set[int]()
    nottoken = _loaded(tokenizer, settings.original_layout)[1].nottoken
    size = sum(document.path.stat().st_size for document in documents)
    with ExampleWriter(place, settings.num_context) as writer, progress(size, "B", "encoding") as bar:
        for group in ordered_map(partial(_encode_group, tokenizer, settings), pieces, workers):
            for part in group:
                count, label = len(part.x), documents[part.document].label
                numbers = np.arange(writer.rows, writer.rows + count) if label is None else np.full(count, label)
                writer.append(x=part.x, y=part.y, i=numbers, num_input=part.num_input)
                if count:
                    served.add(part.document)
                if count and label is not None:
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
def _loaded(place: Path, original: bool) -> tuple[SubwordEncoding, Marks]:
    """One tokenizer per process, read on first use."""
    encoding = load(*(place / name for name in TOKENIZER_FILES))
    return encoding, Marks.of(encoding, original)


@dataclass(frozen=True)
class _Encoded:
    """The examples of a piece."""

    document: int
    x: Array
    y: Array
    num_input: Array
    left_out: int  # tokens
    size: int  # bytes read


def _encode_group(place: Path, settings: EncodeConfig, pieces: list[Piece]) -> list[_Encoded]:
    encoding, marks = _loaded(place, settings.original_layout)
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
    """A line of another document of the group, or of the same one if it has the group for itself."""
    index = int(rng.integers(max(len(texts) - 1, 1)))
    text = texts[index + (index >= own and len(texts) > 1)]
    return text[int(rng.integers(len(text)))]


def _write_tfrecords(place: Path, examples: int, settings: EncodeConfig, workers: int) -> None:
    """The TFRecord files, of the arrays."""
    shards = min(settings.shards, examples)
    with progress(examples, "examples", "writing TFRecords") as bar:
        for count in ordered_map(partial(_write_shard, place, settings.mode, shards), range(shards), workers):
            bar.update(count)


def _write_shard(place: Path, mode: str, shards: int, shard: int) -> int:
    arrays = {name: np.load(place / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
    rows = range(shard, len(arrays["i"]), shards)

    def features() -> Iterator[dict[str, Array]]:
        for row in rows:
            yield {name: np.atleast_1d(array[row]) for name, array in arrays.items()}

    with open(place / f"{mode}_{shard:04d}.tfrecord", "wb") as file:
        write_examples(file, features())
    return len(rows)
