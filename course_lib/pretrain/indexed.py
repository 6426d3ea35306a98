"""Token ids on disk in Megatron's mmap format: PREFIX.bin has the ids back to back, PREFIX.idx says where each sequence lies.

The files are byte for byte those of Megatron-LM's builder. This module neither tokenizes (encode.py) nor samples.

    .idx, little-endian: magic · uint64 1 · uint8 dtype code · uint64 S sequences · uint64 D = documents + 1
                         int32 sizes[S], tokens · int64 pointers[S], bytes · int64 documents[D], first sequence of each, then S
"""

import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write, behind_links, require_file, require_other, require_regular

Array = npt.NDArray[Any]

MAGIC, VERSION = b"MMIDIDX\0\0", 1
LEGACY = b"TNTIDX\0\0"  # the `lazy` and `cached` formats of older Megatrons
HEADER = struct.Struct("<9sQBQQ")
DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}  # 6 and 7 are floats: no tokens
CODES = {np.dtype(name): code for code, name in DTYPES.items()}
SMALL_VOCABULARY = 65_500  # entries; Megatron's limit for two bytes a token
PIECE = 1 << 20  # entries of the index computed at a time


def dtype_for(vocab_size: int) -> np.dtype[Any]:
    """What Megatron stores tokens of such a vocabulary in: uint16 below 65 500 entries, else int32."""
    return np.dtype("<u2" if vocab_size < SMALL_VOCABULARY else "<i4")


def files_of(prefix: Path) -> tuple[Path, Path]:
    """The .bin and the .idx of `X`, `X.bin` or `X.idx`."""
    stem = prefix.with_suffix("") if prefix.suffix in (".bin", ".idx") else prefix
    if not stem.name:
        raise UsageError(f"{prefix}: is a folder, expected a name that .bin and .idx can follow")
    return stem.with_name(stem.name + ".bin"), stem.with_name(stem.name + ".idx")


class IndexedWriter(AbstractContextManager["IndexedWriter"]):
    """Writes both files, which appear when the block ends without an error; until then an earlier product stays as it was.

    Memory: 4 bytes a sequence and 1 a document, besides what is appended at a time.
    """

    def __init__(self, prefix: Path, dtype: np.dtype[Any]) -> None:
        self.prefix, self.dtype = prefix, dtype
        self._sizes: list[Array] = []
        self._counts: list[Array] = []  # sequences of each document

    def append(self, ids: Array, sizes: Array) -> None:
        """Adds documents of one sequence each: their ids back to back and the tokens of each; 0 is a document without a sequence."""
        sizes = np.asarray(sizes, "<i4")
        if ids.dtype != self.dtype or len(ids) != sizes.sum(dtype=np.int64):
            raise ValueError(f"{len(ids)} ids of {ids.dtype} for sizes of {sizes.sum()} tokens of {self.dtype}")
        self._data.write(np.ascontiguousarray(ids).data)
        self._sizes.append(sizes[sizes > 0])
        self._counts.append((sizes > 0).astype(np.int8))

    def extend(self, dataset: "IndexedDataset") -> None:
        """Adds all documents of a dataset of the same dtype."""
        with open(files_of(dataset.prefix)[0], "rb") as file:
            shutil.copyfileobj(file, self._data, PIECE)
        self._sizes.append(dataset.sizes)
        self._counts.append(np.diff(dataset.documents).astype("<i4"))

    def __enter__(self) -> "IndexedWriter":
        self._product = self._whole()
        self._product.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._product.__exit__(*error)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        data_path, index_path = files_of(self.prefix)
        for path in (data_path, index_path):
            require_regular(path)
        with atomic_write(index_path) as index, atomic_write(data_path) as self._data:
            yield
            _write_index(index, self.dtype, self._sizes, self._counts)
            for file in (self._data, index):  # a full disk shows here, before anything is replaced
                file.flush()
                os.fsync(file.fileno())
            # so that no moment has an old index beside new data
            behind_links(index_path).unlink(missing_ok=True)


class IndexedDataset:
    """The sequences of a product as arrays in the mapped file: opening takes milliseconds, and a pickle holds the prefix only.

    `sizes` [tokens], `pointers` [bytes] and `documents` [first sequence of each, then the number of sequences] are those of the .idx;
    `tokens` are all of the .bin.
    Raises CourseError naming the file and what is wrong with it.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        index = _read_index(prefix)
        if index.uncounted_eod:
            raise CourseError(_uncounted(prefix))
        self.dtype, self.sizes = index.dtype, index.sizes
        self.pointers, self.documents = index.pointers, index.documents
        self.tokens = _mapped(files_of(prefix)[0], self.dtype)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> Array:
        return self.get(i)

    def get(self, i: int, offset: int = 0, length: int | None = None) -> Array:
        """`length` tokens of sequence i from token `offset` on; to its end if no length is given. Raises IndexError outside of it."""
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
    """What the index says. `explanation` is one sentence on a miscounted file, else empty."""

    sequences: int
    documents: int
    tokens: int  # as counted by the index
    dtype: np.dtype[Any]
    uncounted_eod: bool
    explanation: str = ""


def summarize(prefix: Path) -> Summary:
    """Counts from the .idx and the size of the .bin: milliseconds for millions of documents. Raises CourseError."""
    index = _read_index(prefix, each=False)
    explanation = _uncounted(prefix) if index.uncounted_eod else ""
    documents = len(index.documents) - 1
    return Summary(len(index.sizes), documents, index.tokens, index.dtype, index.uncounted_eod, explanation)


def merge(prefixes: Sequence[Path], target: Path) -> Summary:
    """Writes the documents of several products, in order, as one, like Megatron's merge. Raises CourseError if they do not fit together."""
    datasets = [IndexedDataset(prefix) for prefix in prefixes]
    if not datasets:
        raise UsageError("nothing to merge; give at least one prefix")
    for dataset in datasets:
        require_other(files_of(dataset.prefix)[0], files_of(target)[0])
        if dataset.dtype != datasets[0].dtype:
            raise CourseError(
                f"{dataset.prefix}: tokens are {dataset.dtype}, those of {datasets[0].prefix} {datasets[0].dtype}; only one dtype merges"
            )
    with IndexedWriter(target, datasets[0].dtype) as writer:
        for dataset in datasets:
            writer.extend(dataset)
    return summarize(target)


def repair(prefix: Path) -> Summary:
    """Rewrites the .idx of a file with uncounted end-of-document tokens so that it counts them: exactly what Megatron-LM writes."""
    index = _read_index(prefix)
    if not index.uncounted_eod:
        raise CourseError(f"{prefix}: its index counts all tokens: nothing to repair")
    counts, sizes = np.diff(index.documents), index.sizes.copy()
    sizes[index.documents[1:][counts > 0] - 1] += 1  # the last sequence of each document that has any
    with atomic_write(files_of(prefix)[1]) as file:
        _write_index(file, index.dtype, [sizes], [counts])
    return summarize(prefix)


def _write_index(file: IO[bytes], dtype: np.dtype[Any], sizes: Sequence[Array], counts: Sequence[Array]) -> None:
    """`sizes` of all sequences and `counts` of sequences of all documents, each in any number of arrays."""
    file.write(HEADER.pack(MAGIC, VERSION, CODES[dtype], sum(map(len, sizes)), 1 + sum(map(len, counts))))
    for part in sizes:
        file.write(np.ascontiguousarray(part, "<i4").data)
    for part, ends in _running_sums(sizes):
        file.write(((ends - part) * dtype.itemsize).data)
    file.write(np.zeros(1, "<i8").data)
    for _, ends in _running_sums(counts):
        file.write(ends.data)


def _running_sums(parts: Iterable[Array]) -> Iterator[tuple[Array, Array]]:
    """Pieces of the arrays with their cumulative sums, which go on from piece to piece."""
    total = 0
    for part in parts:
        for start in range(0, len(part), PIECE):
            piece = part[start : start + PIECE]
            ends = total + np.cumsum(piece, dtype="<i8")
            total = int(ends[-1])
            yield piece, ends


@dataclass(frozen=True)
class _Index:
    dtype: np.dtype[Any]
    sizes: Array
    pointers: Array
    documents: Array
    tokens: int
    uncounted_eod: bool


def _read_index(prefix: Path, each: bool = True) -> _Index:
    """The mapped index of a product whose two files add up, `each`: pointer by pointer. Raises CourseError naming the file that does not."""
    data_path, path = files_of(prefix)
    dtype, sequences, _ = _read_header(path)
    if not data_path.is_file():
        raise CourseError(f"{data_path}: no such file; {path.name} is of no use without it")
    content = _mapped(path, np.dtype("u1"))
    middle, last = HEADER.size + 4 * sequences, HEADER.size + 12 * sequences
    sizes, pointers, documents = (
        content[HEADER.size : middle].view("<i4"), content[middle:last].view("<i8"), content[last:].view("<i8")
    )  # fmt: skip
    tokens = int(sizes.sum(dtype=np.int64))
    end = int(pointers[-1]) + int(sizes[-1]) * dtype.itemsize if sequences else 0
    sound = end == tokens * dtype.itemsize and documents[0] == 0 and documents[-1] == sequences
    if not sound or (
        each and not (_follow(pointers, sizes, dtype.itemsize) and np.all(documents[1:] >= documents[:-1]))
    ):
        raise CourseError(f"{path}: broken: its sizes, pointers and documents do not add up")
    stored, rest = divmod(data_path.stat().st_size, dtype.itemsize)
    uncounted = stored > tokens and stored - tokens == np.count_nonzero(np.diff(documents))
    if rest or (stored != tokens and not uncounted):
        wrong = "truncated" if stored < tokens else "not of the same run"
        raise CourseError(
            f"{data_path}: {wrong}: {data_path.stat().st_size} bytes, but {path.name} describes {tokens * dtype.itemsize}"
        )
    return _Index(dtype, sizes, pointers, documents, tokens, bool(uncounted))


def _follow(pointers: Array, sizes: Array, itemsize: int) -> bool:
    """Whether each pointer is the end of the sequence before."""
    at = 0
    for part, ends in _running_sums([sizes]):
        if np.any(pointers[at : at + len(part)] != (ends - part) * itemsize):
            return False
        at += len(part)
    return True


def _read_header(path: Path) -> tuple[np.dtype[Any], int, int]:
    """dtype, sequences and entries of the document index, of an .idx of the length these call for."""
    size = require_file(path).stat().st_size
    with path.open("rb") as file:
        start = file.read(HEADER.size)
    if start.startswith(LEGACY):
        raise CourseError(f"{path}: an index of Megatron's older lazy/cached format (TNTIDX); tokenize the text again")
    if not start.startswith(MAGIC):
        raise CourseError(f"{path}: no Megatron index: it starts with {start[: len(MAGIC)]!r}, expected {MAGIC!r}")
    if len(start) < HEADER.size:
        raise CourseError(f"{path}: truncated: {size} bytes are less than a header")
    _, version, code, sequences, entries = HEADER.unpack(start)
    if version != VERSION:
        raise CourseError(f"{path}: version {version} of the format; known: {VERSION}")
    if code not in DTYPES:
        raise CourseError(f"{path}: dtype code {code} is none of tokens; known: {', '.join(map(str, DTYPES))}")
    expected = HEADER.size + 12 * sequences + 8 * entries
    if size != expected or not entries:
        wrong = "truncated" if size < expected else "broken"
        raise CourseError(
            f"{path}: {wrong}: {size} bytes, but {sequences} sequences and {entries} document entries make {expected}"
        )
    return np.dtype(DTYPES[code]), sequences, entries


def _mapped(path: Path, dtype: np.dtype[Any]) -> Array:
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.empty(0, dtype)


def _uncounted(prefix: Path) -> str:
    return (
        f"{prefix}: written by a Megatron-DeepSpeed that put an end-of-document token after each document without counting it, so that "
        "every document after the first would be read from the wrong place; `course tokens --repair` corrects the index"
    )
