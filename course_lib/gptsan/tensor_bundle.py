"""Reader for TensorFlow checkpoints in the V2 format, which TensorFlow 1.x and 2.x write.

The reader does not need TensorFlow, a download of 307 MB. The format (see tensorflow/core/util/tensor_bundle,
tensor_bundle.proto, and doc/table_format.md in leveldb):

- `PREFIX.index` is a sorted string table: blocks of key-value entries, an index block that points to them, and a
  footer. Consecutive keys in a block share prefixes.
- The empty key holds a header. Every other key is the name of a tensor, and its value a BundleEntryProto.
- `PREFIX.data-0000K-of-0000N` is shard K, which holds tensor data.
- A masked CRC32C follows every block and is stored in every entry.
"""

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from google_crc32c import extend

from course_lib.checkpoints.protobuf import fields, varints
from course_lib.errors import CourseError
from course_lib.files import CHUNK, require_file

MAGIC = 0xDB4775248B80FB57
FOOTER = 48  # bytes: two block handles, padding, the magic number
# TensorFlow DataType value → (NumPy dtype of the bytes, dtype of the tensor).
DTYPES: dict[int, tuple[str, torch.dtype]] = {
    1: ("<f4", torch.float32),
    9: ("<i8", torch.int64),
    14: ("<i2", torch.bfloat16),
    19: ("<f2", torch.float16),
}


class Entry(NamedTuple):
    """Where a tensor is: its bytes in a shard, and their masked CRC32C."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int  # bytes
    crc32c: int


class TensorBundle:
    """TensorFlow checkpoint. The index is read immediately, and each tensor when `read` is called."""

    def __init__(self, source: Path) -> None:
        """Read the index of the checkpoint at `source`: the path prefix of its files, the index file or the folder."""
        self.index = find_index(source)
        self.prefix = self.index.with_suffix("")
        content = require_file(self.index).read_bytes()
        if len(content) < FOOTER or struct.unpack("<Q", content[-8:])[0] != MAGIC:
            raise CourseError(f"{self.index}: not the index of a TensorFlow checkpoint (V2), or cut short")
        try:
            table = dict(_table(content))
            # num_shards in the header
            self.shards = dict(fields(table.pop(b"")))[1]
            self.entries = {key.decode(): _entry(value) for key, value in table.items()}
        except (LookupError, ValueError, TypeError, struct.error) as error:
            raise CourseError(f"{self.index}: the index is damaged ({error})") from error

    def read(self, name: str) -> torch.Tensor:
        """Read a tensor and verify its checksum."""
        entry = self.entries[name]
        shard = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard:05d}-of-{self.shards:05d}")
        kind, dtype = DTYPES.get(entry.dtype, ("", None))
        if dtype is None or entry.size != math.prod(entry.shape) * dtype.itemsize:
            raise CourseError(f"{self.index}: {name}: {entry} is damaged or no tensor of numbers")
        raw = np.fromfile(require_file(shard), np.uint8, entry.size, offset=entry.offset)
        end = entry.offset + entry.size
        if len(raw) < entry.size:
            raise CourseError(f"{shard}: cut short: {name} should end at byte {end}")
        if masked_crc32c(raw) != entry.crc32c:
            raise CourseError(
                f"{shard}: {name}: checksum differs, the file is damaged at bytes {entry.offset} to {end}"
            )
        return torch.from_numpy(raw.view(kind).reshape(entry.shape)).view(dtype)


def masked_crc32c(data: Any) -> int:
    """Return the CRC32C of a buffer, masked as leveldb does: a CRC of data that contains CRCs is weak."""
    crc = 0
    for start in range(0, len(data), CHUNK):
        crc = extend(crc, bytes(data[start : start + CHUNK]))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def find_index(source: Path) -> Path:
    """Return the index file of a checkpoint, given that file, the path prefix or a folder with a single checkpoint."""
    if not source.is_dir():
        return source.with_name(source.name.removesuffix(".index") + ".index")
    indexes = list(source.glob("*.index"))
    if len(indexes) != 1:
        raise CourseError(f"{source}: {len(indexes)} TensorFlow checkpoints (*.index); give one by its name")
    return indexes[0]


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values in an index file."""
    # The footer holds the handles (offset and size) of an unused block and of the index block.
    _, _, offset, size, _ = varints(content, len(content) - FOOTER, 4)
    for _, handle in _block(content, offset, size):
        yield from _block(content, *varints(handle, 0, 2)[:2])


def _block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values in a block."""
    compression, crc = struct.unpack_from("<BI", content, offset + size)
    if compression or masked_crc32c(content[offset : offset + size + 1]) != crc:
        raise ValueError(f"checksum differs at byte {offset}")
    block = content[offset : offset + size]
    # Number of restart points after the entries. They are for binary search and are not needed here.
    restarts = struct.unpack("<I", block[-4:])[0]
    end, at, key = size - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, rest, length, at = varints(block, at, 3)
        key = key[:shared] + block[at : at + rest]
        at += rest + length
        yield key, block[at - length : at]


def _entry(message: bytes) -> Entry:
    """Return a BundleEntryProto; its field 2 is a TensorShapeProto, whose repeated field 2 is an axis."""
    found = dict(fields(message))
    shape = tuple(dict(fields(axis)).get(1, 0) for number, axis in fields(found.get(2, b"")) if number == 2)
    dtype, shard, offset, size = (found.get(number, 0) for number in (1, 3, 4, 5))
    return Entry(dtype, shape, shard, offset, size, int.from_bytes(found.get(6, b""), "little"))
