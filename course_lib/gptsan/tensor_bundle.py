"""Reader for TensorFlow checkpoints in the V2 format, which TensorFlow 1.x and 2.x write.

The reader does not need TensorFlow, a download of 307 MB. The format (see tensorflow/core/util/tensor_bundle, and
doc/table_format.md in leveldb):

- `PREFIX.index` is a sorted string table: blocks of key-value entries, an index block that points to them, and a
  footer. Consecutive keys in a block share prefixes.
- The empty key holds a header. Every other key is the name of a tensor. Its value is a BundleEntryProto with the dtype,
  the shape, and the shard and offset of the tensor data.
- `PREFIX.data-0000K-of-0000N` is shard K, which holds tensor data.
- A masked CRC32C follows every block and is stored in every entry.

Tensors saved in slices are not supported.
"""

import math
import re
import struct
from collections.abc import Iterator
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


class TensorBundle:
    """TensorFlow checkpoint. The index is read immediately, and each tensor when `read` is called."""

    def __init__(self, source: Path) -> None:
        """Read the index of the checkpoint at `source`, which is any path that `find_prefix` accepts."""
        self.prefix = find_prefix(source)
        self.index = self.prefix.with_name(self.prefix.name + ".index")
        table = _read_index(self.index)
        try:
            header = messages()["Header"].FromString(table.pop(b""))
            self.entries = {key.decode(): messages()["Entry"].FromString(value) for key, value in table.items()}
        except (KeyError, ValueError, DecodeError) as error:
            raise CourseError(f"{self.index}: the index is damaged ({error})") from error
        if header.endianness:
            raise CourseError(f"{self.index}: written on a big-endian machine, which is not supported")
        self.shards: int = header.num_shards
        self._maps: dict[Path, Any] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(axis.size for axis in self.entries[name].shape.dim)

    def check(self, name: str) -> Path:
        """Check the dtype, size and location of a tensor without reading its data; return the shard that holds it."""
        entry, shape = self.entries[name], self.shape(name)
        if entry.slices:
            raise CourseError(f"{self.index}: {name}: a tensor saved in slices, which is not supported")
        if entry.dtype not in DTYPES:
            allowed = "float, half, bfloat16, integers"
            raise CourseError(f"{self.index}: {name}: data type {entry.dtype}; allowed: {allowed}")
        if entry.size != math.prod(shape) * np.dtype(DTYPES[entry.dtype][0]).itemsize:
            raise CourseError(f"{self.index}: {name}: {entry.size} bytes do not fit shape {shape}: damaged")
        shard = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard_id:05d}-of-{self.shards:05d}")
        if not 0 <= entry.offset <= require_file(shard).stat().st_size - entry.size:
            raise CourseError(f"{shard}: cut short: {name} should end at byte {entry.offset + entry.size}")
        return shard

    def read(self, name: str) -> torch.Tensor:
        """Verify the checksum of a tensor and return the tensor, memory-mapped from its shard."""
        entry, shard = self.entries[name], self.check(name)
        if shard not in self._maps:
            # Copy-on-write: the file is never changed.
            self._maps[shard] = np.memmap(shard, dtype=np.uint8, mode="c")
        end = entry.offset + entry.size
        raw = self._maps[shard][entry.offset : end]
        if masked_crc32c(raw) != entry.crc32c:
            raise CourseError(
                f"{shard}: {name}: checksum differs, the file is damaged at bytes {entry.offset} to {end}"
            )
        kind, dtype = DTYPES[entry.dtype]
        return torch.from_numpy(raw.view(kind).reshape(self.shape(name))).view(dtype)


def find_prefix(source: Path) -> Path:
    """Return the path prefix of the checkpoint files.

    `source` is a prefix, an index file or a folder. If a folder contains a file named `checkpoint`, that file names the
    newest checkpoint. Otherwise, the folder must contain exactly one index file.
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
            raise CourseError(f"{source}: no TensorFlow checkpoint: {len(indexes)} files *.index; expected one")
        source = indexes[0]
    prefix = source.with_name(source.name.removesuffix(".index"))
    if not prefix.with_name(prefix.name + ".index").is_file():
        raise CourseError(f"{source}: no TensorFlow checkpoint: {prefix.name}.index is not there")
    return prefix


def _read_index(path: Path) -> dict[bytes, bytes]:
    """Read the keys and values in an index file."""
    content = require_file(path).read_bytes()
    if len(content) < FOOTER or struct.unpack("<Q", content[-8:])[0] != MAGIC:
        raise CourseError(f"{path}: not the index of a TensorFlow checkpoint (V2), or cut short")
    try:
        # The footer holds the handles of an unused block and of the index block.
        _, _, at = _handle(content, len(content) - FOOTER)
        table: dict[bytes, bytes] = {}
        for _, handle in _block(content, *_handle(content, at)[:2]):
            table.update(_block(content, *_handle(handle, 0)[:2]))
    except (IndexError, ValueError, struct.error) as error:
        raise CourseError(f"{path}: the index is damaged ({error})") from error
    return table


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at offset `at` (7 bits per byte, lowest bits first); return it and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Decode the handle of a block: its offset and size [bytes], and the offset after the handle."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values in a block."""
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
