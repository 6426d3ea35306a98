"""Reader for TensorFlow checkpoints in the V2 format, which TensorFlow 1.x and 2.x write.

The reader does not need TensorFlow: tensorflow-cpu 2.21 requires a download of 307 MB (wheels) and 1.4 GB of disk
space. The only reader on PyPI that works without TensorFlow, tensorflow-checkpoint-reader, describes itself as
unfinished and has not changed since 2023.

The format (see tensorflow/core/util/tensor_bundle, and doc/table_format.md in leveldb):

- `PREFIX.index` is a sorted string table. It consists of blocks of key-value entries, one index block that points to
  the other blocks, and a footer. Consecutive keys in a block share prefixes.
- The empty key holds a header. Every other key is the name of a tensor. Its value is a BundleEntryProto with the dtype,
  the shape, and the shard and offset of the tensor data.
- `PREFIX.data-0000K-of-0000N` is shard K, which holds tensor data.
- A CRC32C follows every block and is stored in every entry. It is masked, because a CRC of data that contains CRCs is
  weak.

Tensors saved in slices are not supported.
"""

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from google.protobuf.message import DecodeError

from course_lib.errors import CourseError
from course_lib.files import require_file
from course_lib.gptsan.tensorflow_format import Messages, masked_crc32c, message_classes

MAGIC = 0xDB4775248B80FB57
FOOTER = 48  # bytes: two block handles, padding, the magic number
# TensorFlow DataType value → (NumPy dtype of the bytes, dtype of the tensor).
DTYPES: dict[int, tuple[str, torch.dtype]] = {
    1: ("<f4", torch.float32),
    2: ("<f8", torch.float64),
    3: ("<i4", torch.int32),
    9: ("<i8", torch.int64),
    14: ("<i2", torch.bfloat16),
    19: ("<f2", torch.float16),
}

# The fields from tensor_bundle.proto and tensor_shape.proto that are used here.
MESSAGES: Messages = {
    "Axis": [("size", 1, "int64", False)],
    "Shape": [("dim", 2, "Axis", True)],
    "Slice": [],
    "Header": [("num_shards", 1, "int32", False), ("endianness", 2, "int32", False)],
    "Entry": [
        ("dtype", 1, "int32", False), ("shape", 2, "Shape", False), ("shard_id", 3, "int32", False),
        ("offset", 4, "int64", False), ("size", 5, "int64", False), ("crc32c", 6, "fixed32", False),
        ("slices", 7, "Slice", True),
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """Dtype, shape and location of a tensor in a checkpoint."""

    dtype: int  # key of DTYPES
    shape: tuple[int, ...]
    shard: int
    offset: int  # bytes from the start of the shard
    size: int  # bytes
    crc: int  # masked CRC32C of the bytes


class TensorBundle:
    """TensorFlow checkpoint. The index is read immediately, and each tensor when `read` is called."""

    def __init__(self, source: Path) -> None:
        """Read the index of the checkpoint at `source`, which is any path that `find_prefix` accepts.

        Raises CourseError if `source` is not a checkpoint or its index is damaged.
        """
        self.prefix = find_prefix(source)
        self.index = self.prefix.with_name(self.prefix.name + ".index")
        header, self.entries = _read_index(self.index)
        if header.endianness:
            raise CourseError(f"{self.index}: written on a big-endian machine, which is not supported")
        self.shards: int = header.num_shards
        self._maps: dict[int, Any] = {}

    def check(self, name: str) -> None:
        """Check the dtype, size and location of a tensor without reading its data.

        Raises CourseError if the dtype is not supported, the size does not match the shape, or the shard is too short.
        """
        entry = self.entries[name]
        if entry.dtype not in DTYPES:
            allowed = "float, half, bfloat16, integers"
            raise CourseError(f"{self.index}: {name}: data type {entry.dtype}; allowed: {allowed}")
        if entry.size != math.prod(entry.shape) * np.dtype(DTYPES[entry.dtype][0]).itemsize:
            raise CourseError(f"{self.index}: {name}: {entry.size} bytes do not fit shape {entry.shape}: damaged")
        shard = self.shard(entry.shard)
        if not 0 <= entry.offset <= require_file(shard).stat().st_size - entry.size:
            raise CourseError(f"{shard}: cut short: {name} should end at byte {entry.offset + entry.size}")

    def shard(self, number: int) -> Path:
        """Return the path of a shard."""
        return self.prefix.with_name(f"{self.prefix.name}.data-{number:05d}-of-{self.shards:05d}")

    def read(self, name: str) -> torch.Tensor:
        """Verify the checksum of a tensor and return the tensor, memory-mapped from its shard.

        Raises CourseError if the checksum differs or `check` fails.
        """
        self.check(name)
        entry = self.entries[name]
        shard = self.shard(entry.shard)
        if entry.shard not in self._maps:
            # Copy-on-write: the file is never changed.
            self._maps[entry.shard] = np.memmap(shard, dtype=np.uint8, mode="c")
        end = entry.offset + entry.size
        raw = self._maps[entry.shard][entry.offset : end]
        if masked_crc32c(raw) != entry.crc:
            raise CourseError(
                f"{shard}: {name}: checksum differs, the file is damaged at bytes {entry.offset} to {end}"
            )
        kind, dtype = DTYPES[entry.dtype]
        return torch.from_numpy(raw.view(kind).reshape(entry.shape)).view(dtype)


def find_prefix(source: Path) -> Path:
    """Return the path prefix of the checkpoint files.

    Args:
        source: A prefix, an index file or a folder. If a folder contains a file named `checkpoint`, that file names the
            newest checkpoint. Otherwise, the folder must contain exactly one index file.

    Raises:
        CourseError: There is no checkpoint.
    """
    state = source / "checkpoint"
    if state.is_file():
        text = state.read_text(encoding="utf8", errors="replace")
        named = re.search(r'^model_checkpoint_path: "(.+)"', text, re.MULTILINE)
        if not named:
            raise CourseError(f"{state}: names no checkpoint (model_checkpoint_path)")
        # Use only the file name: the folder may have been moved since the path was written.
        source = source / Path(named[1]).name
    elif source.is_dir():
        indexes = sorted(source.glob("*.index"))
        if len(indexes) != 1:
            raise CourseError(
                f"{source}: no TensorFlow checkpoint: {len(indexes)} files *.index in it, "
                "and no file `checkpoint` that names one"
            )
        source = indexes[0]
    prefix = source.with_name(source.name.removesuffix(".index"))
    if not prefix.with_name(prefix.name + ".index").is_file():
        raise CourseError(f"{source}: no TensorFlow checkpoint: {prefix.name}.index is not there")
    return prefix


def _read_index(path: Path) -> tuple[Any, dict[str, Entry]]:
    """Read an index file. Return the header and a mapping from tensor names to entries."""
    content = require_file(path).read_bytes()
    if len(content) < FOOTER or struct.unpack("<Q", content[-8:])[0] != MAGIC:
        raise CourseError(f"{path}: not the index of a TensorFlow checkpoint (V2), or cut short")
    try:
        _, at = _handle(content, len(content) - FOOTER)
        blocks, _ = _handle(content, at)
        table: dict[bytes, bytes] = {}
        for _, handle in _block(content, *blocks):
            table.update(_block(content, *_handle(handle, 0)[0]))
        header = messages()["Header"].FromString(table.pop(b""))
        return header, {key.decode(): _entry(value) for key, value in table.items()}
    except (IndexError, KeyError, ValueError, struct.error, DecodeError) as error:
        raise CourseError(f"{path}: the index is damaged ({error or type(error).__name__})") from error


def _entry(value: bytes) -> Entry:
    read = messages()["Entry"].FromString(value)
    if read.slices:
        raise ValueError("a tensor saved in slices, which is not supported")
    shape = tuple(axis.size for axis in read.shape.dim)
    return Entry(read.dtype, shape, read.shard_id, read.offset, read.size, read.crc32c)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at offset `at` (7 bits per byte, lowest bits first).

    Return its value and the offset after it. Raises IndexError if the data ends within the varint.
    """
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Decode the block handle at `at` and return ((offset, size) of the block in bytes, offset after the handle)."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values in a block. Raises ValueError if the checksum is wrong or the block is compressed."""
    compression, crc = struct.unpack_from("<BI", content, offset + size)
    if masked_crc32c(content[offset : offset + size + 1]) != crc:
        raise ValueError(f"checksum differs at byte {offset}")
    if compression:
        raise ValueError("compressed, which no TensorFlow writes here")
    block = content[offset : offset + size]
    # Number of restart points after the entries. They are for binary search and are not needed here.
    restarts = struct.unpack("<I", block[-4:])[0]
    end, at, key = size - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        rest, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + rest]
        at += rest + length
        yield key, block[at - length : at]


@cache
def messages() -> dict[str, Any]:
    """Return the protobuf classes for MESSAGES, by name."""
    return message_classes(MESSAGES)
