"""Writer for TFRecord files of tf.train.Example messages with integer features, without TensorFlow.

The messages are those in tensorflow/core/example/{example,feature}.proto, in the protobuf wire format
(https://protobuf.dev/programming-guides/encoding).
"""

import struct
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from google_crc32c import extend

from course_lib.files import CHUNK


def masked_crc32c(data: Any) -> int:
    """Return the CRC32C of a buffer, masked as leveldb does: a CRC of data that contains CRCs is weak."""
    crc = 0
    for start in range(0, len(data), CHUNK):
        crc = extend(crc, bytes(data[start : start + CHUNK]))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varints(values: npt.ArrayLike) -> bytes:
    """Return integers as protobuf varints: 7 bits per byte, lowest bits first; bit 8 says that another byte follows."""
    # [values, 10]
    rest = np.asarray(values, np.int64).astype(np.uint64)[:, None] >> np.arange(0, 70, 7, dtype=np.uint64)
    used = rest > 0
    used[:, 0] = True
    return np.where(rest > 127, rest & 127 | 128, rest).astype(np.uint8)[used].tobytes()


def _field(number: int, content: bytes) -> bytes:
    """Return a protobuf field that holds a string, a message or packed integers."""
    return bytes([number << 3 | 2]) + varints([len(content)]) + content


def write_examples(file: IO[bytes], examples: Iterable[Mapping[str, npt.NDArray[np.integer[Any]]]]) -> None:
    """Append one record per example to an open file: length, checksum, message, checksum."""
    for features in examples:
        entries = b""
        for name, values in features.items():
            # Feature.int64_list.value
            numbers = _field(3, _field(1, varints(values)))
            entries += _field(1, _field(1, name.encode()) + _field(2, numbers))
        content = _field(1, entries)
        for part in struct.pack("<Q", len(content)), content:
            file.write(part + struct.pack("<I", masked_crc32c(part)))
