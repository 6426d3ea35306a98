"""Token files in Megatron's mmap format: token ids in PREFIX.bin and a sequence index in PREFIX.idx.

The files are byte-for-byte identical to those written by the Megatron-LM indexed dataset builder. encode.py tokenizes
text; sampling.py creates training samples.

    .idx, little-endian: magic · uint64 1 · uint8 dtype code · uint64 S sequences · uint64 D = documents + 1
                         int32 sizes[S] [tokens] · int64 pointers[S] [bytes] ·
                         int64 documents[D]: the first sequence of each document, then S
"""

import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write, behind_links, require_file, require_other

Array = npt.NDArray[Any]

MAGIC, VERSION = b"MMIDIDX\0\0", 1
HEADER = struct.Struct("<9sQBQQ")
# Data types by code. Codes 6 and 7 are floating-point types, which cannot hold tokens.
DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
CODES = {np.dtype(name): code for code, name in DTYPES.items()}
SMALL_VOCABULARY = 65_500  # entries; below this vocabulary size, Megatron stores two bytes per token
UNCOUNTED = (
    "written by a Megatron-DeepSpeed that put an end-of-document token after each document without counting it, so "
    "that every document after the first would be read from the wrong place; `course tokens --repair` corrects the "
    "index"
)


def dtype_for(vocab_size: int) -> np.dtype[Any]:
    """Return the dtype that Megatron uses for tokens: uint16 if the vocabulary size is below 65,500, else int32."""
    return np.dtype("<u2" if vocab_size < SMALL_VOCABULARY else "<i4")


def files_of(prefix: Path) -> tuple[Path, Path]:
    """Return the X.bin and X.idx paths for the prefix X, which may also be given as X.bin or X.idx."""
    stem = prefix.with_suffix("") if prefix.suffix in (".bin", ".idx") else prefix
    if not stem.name:
        raise UsageError(f"{prefix}: is a folder, expected a name that .bin and .idx can follow")
    return stem.with_name(stem.name + ".bin"), stem.with_name(stem.name + ".idx")


class IndexedWriter(ExitStack):
    """Context manager that writes PREFIX.bin and PREFIX.idx, which appear when the block exits without an error."""

    def __init__(self, prefix: Path, dtype: np.dtype[Any]) -> None:
        super().__init__()
        self.prefix, self.dtype = prefix, dtype
        self._sizes: list[Array] = []
        self._counts: list[Array] = []  # number of sequences in each document

    def append(self, ids: Array, sizes: Array) -> None:
        """Add documents from their concatenated ids and sizes [tokens]; a document of 0 tokens has no sequence."""
        sizes = np.asarray(sizes, "<i4")
        if ids.dtype != self.dtype or len(ids) != sizes.sum(dtype=np.int64):
            raise ValueError(f"{len(ids)} ids of {ids.dtype} for sizes of {sizes.sum()} tokens of {self.dtype}")
        self._data.write(np.ascontiguousarray(ids).data)
        self._sizes.append(sizes[sizes > 0])
        self._counts.append((sizes > 0).astype(np.int8))

    def extend(self, dataset: "IndexedDataset") -> None:
        """Add all documents from a dataset with the same dtype."""
        with open(files_of(dataset.prefix)[0], "rb") as file:
            shutil.copyfileobj(file, self._data)
        self._sizes.append(dataset.sizes)
        self._counts.append(np.diff(dataset.documents).astype("<i4"))

    def __enter__(self) -> "IndexedWriter":
        self.enter_context(self._whole(*files_of(self.prefix)))
        return self

    @contextmanager
    def _whole(self, data_path: Path, index_path: Path) -> Iterator[None]:
        with atomic_write(index_path) as index, atomic_write(data_path) as self._data:
            yield
            _write_index(index, self.dtype, self._sizes, self._counts)
            # A full disk raises an error here, before any existing file is replaced.
            for file in (self._data, index):
                file.flush()
                os.fsync(file.fileno())
            # Remove the old index first, so that it never exists next to new data.
            behind_links(index_path).unlink(missing_ok=True)


class IndexedDataset:
    """The sequences in a token file as memory-mapped arrays. Opening it takes milliseconds; pickled, it is its prefix.

    Attributes:
        sizes: number of tokens in each sequence [sequences].
        pointers: byte offset of each sequence in the .bin file [sequences].
        documents: index of the first sequence in each document, followed by the number of sequences [documents + 1].
        tokens: all token ids in the .bin file [tokens].
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        index = _read_index(prefix)
        if index.uncounted_eod:
            raise CourseError(f"{prefix}: {UNCOUNTED}")
        self.dtype, self.sizes, self.pointers, self.documents, _ = index
        self.tokens = _mapped(files_of(prefix)[0], self.dtype)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> Array:
        return self.get(i)

    def get(self, i: int, offset: int = 0, length: int | None = None) -> Array:
        """Return `length` tokens (None: all) of sequence `i` from token `offset` on."""
        size = int(self.sizes[i])
        end = size if length is None else offset + length
        if not 0 <= offset <= end <= size:
            raise IndexError(f"tokens {offset} to {end} of a sequence of {size}")
        start = int(self.pointers[i]) // self.dtype.itemsize
        return self.tokens[start + offset : start + end]

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexedDataset, (self.prefix,)


@dataclass(frozen=True)
class Summary:
    """Counts of a token file according to its index."""

    sequences: int
    documents: int
    tokens: int
    dtype: np.dtype[Any]
    explanation: str = ""  # what is wrong with the index; empty if nothing is


def summarize(prefix: Path) -> Summary:
    """Return the counts of a token file, in milliseconds even for millions of documents."""
    index = _read_index(prefix, each=False)
    tokens = int(index.sizes.sum(dtype=np.int64))
    explanation = UNCOUNTED if index.uncounted_eod else ""
    return Summary(len(index.sizes), len(index.documents) - 1, tokens, index.dtype, explanation)


def merge(prefixes: Sequence[Path], target: Path) -> Summary:
    """Merge token files of one dtype, in order, into `target`, with the same result as Megatron's merge."""
    datasets = [IndexedDataset(prefix) for prefix in prefixes]
    for dataset in datasets:
        require_other(files_of(dataset.prefix)[0], files_of(target)[0])
        if dataset.dtype != datasets[0].dtype:
            raise CourseError(
                f"{dataset.prefix}: tokens are {dataset.dtype}, those of {datasets[0].prefix} {datasets[0].dtype}; "
                "only one dtype merges"
            )
    with IndexedWriter(target, datasets[0].dtype) as writer:
        for dataset in datasets:
            writer.extend(dataset)
    return summarize(target)


def repair(prefix: Path) -> Summary:
    """Rewrite an index that omits the end-of-document tokens as Megatron-LM writes it."""
    index = _read_index(prefix)
    if not index.uncounted_eod:
        raise CourseError(f"{prefix}: its index counts all tokens: nothing to repair")
    counts, sizes = np.diff(index.documents), index.sizes.copy()
    # The omitted token belongs to the last sequence in each non-empty document.
    sizes[index.documents[1:][counts > 0] - 1] += 1
    with atomic_write(files_of(prefix)[1]) as file:
        _write_index(file, index.dtype, [sizes], [counts])
    return summarize(prefix)


def _write_index(file: IO[bytes], dtype: np.dtype[Any], sizes: Sequence[Array], counts: Sequence[Array]) -> None:
    """Write an .idx file from the tokens of each sequence and the sequences of each document, in parts of any size."""
    joined = np.concatenate([np.empty(0, "<i4"), *sizes])
    documents = np.cumsum(np.concatenate([np.zeros(1, "<i8"), *counts]), dtype="<i8")
    file.write(HEADER.pack(MAGIC, VERSION, CODES[dtype], len(joined), len(documents)))
    for part in (joined, (_ends(joined) - joined) * dtype.itemsize, documents):
        file.write(part.data)


def _ends(sizes: Array) -> Array:
    """Return the number of tokens up to the end of each sequence."""
    return np.cumsum(sizes, dtype="<i8")


class _Index(NamedTuple):
    dtype: np.dtype[Any]
    sizes: Array
    pointers: Array
    documents: Array
    uncounted_eod: bool  # whether the index omits the end-of-document tokens


def _read_index(prefix: Path, each: bool = True) -> _Index:
    """Return the memory-mapped index of a token file, checked against the .bin file and, if `each`, entry by entry."""
    data_path, path = files_of(prefix)
    dtype, sequences = _read_header(path)
    content = _mapped(path, np.dtype("u1"))[HEADER.size :]
    sizes, pointers = content[: 4 * sequences].view("<i4"), content[4 * sequences : 12 * sequences].view("<i8")
    documents = content[12 * sequences :].view("<i8")
    tokens = int(sizes.sum(dtype=np.int64))
    end = int(pointers[-1]) + int(sizes[-1]) * dtype.itemsize if sequences else 0
    sound = end == tokens * dtype.itemsize and documents[0] == 0 and documents[-1] == sequences
    if sound and each:
        sound = np.array_equal(pointers, (_ends(sizes) - sizes) * dtype.itemsize) and np.all(np.diff(documents) >= 0)
    if not sound:
        raise CourseError(f"{path}: broken: its sizes, pointers and documents do not add up")
    size = require_file(data_path).stat().st_size if tokens else 0
    uncounted = size > tokens * dtype.itemsize
    eods = np.count_nonzero(np.diff(documents)) if uncounted else 0
    if size != (tokens + eods) * dtype.itemsize:
        raise CourseError(f"{data_path}: {size} bytes, but {path.name} describes {tokens * dtype.itemsize} bytes")
    return _Index(dtype, sizes, pointers, documents, uncounted)


def _read_header(path: Path) -> tuple[np.dtype[Any], int]:
    """Return the dtype and the number of sequences from an .idx header."""
    size = require_file(path).stat().st_size
    with path.open("rb") as file:
        start = file.read(HEADER.size)
    if not start.startswith(MAGIC) or len(start) < HEADER.size:
        raise CourseError(f"{path}: not a Megatron index, or truncated: {size} bytes that start with {start[:9]!r}")
    _, version, code, sequences, entries = HEADER.unpack(start)
    if version != VERSION or code not in DTYPES:
        raise CourseError(f"{path}: version {version}, dtype code {code}; allowed: {VERSION} and {list(DTYPES)}")
    if not entries or size != HEADER.size + 12 * sequences + 8 * entries:
        raise CourseError(f"{path}: truncated or broken: {size} bytes for {sequences} sequences, {entries} entries")
    return np.dtype(DTYPES[code]), sequences


def _mapped(path: Path, dtype: np.dtype[Any]) -> Array:
    """Return a file as a memory-mapped array, or an empty array for an empty file, which cannot be mapped."""
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.empty(0, dtype)
