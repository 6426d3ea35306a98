"""Reader for messages of protobuf without their classes: https://protobuf.dev/programming-guides/encoding."""

from collections.abc import Iterator
from typing import Any


def varints(data: bytes, at: int, count: int) -> list[int]:
    """Decode varints at offset `at` (7 bits per byte, lowest bits first); return them and the offset after them."""
    values = []
    for _ in range(count):
        value = shift = 0
        while (byte := data[at]) > 127:
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
        values.append(value | byte << shift)
        at += 1
    return [*values, at]


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message by number: integers, and the bytes of inner messages."""
    at = 0
    while at < len(message):
        key, at = varints(message, at, 1)
        if key & 7 == 0:
            value, at = varints(message, at, 1)
            yield key >> 3, value
        else:
            # A length-delimited field, or 4 bytes.
            size, at = varints(message, at, 1) if key & 7 == 2 else (4, at)
            yield key >> 3, message[at : at + size]
            at += size
