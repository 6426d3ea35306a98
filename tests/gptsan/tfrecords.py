"""Reads TFRecord files with tensorboard's reader, which checks every checksum."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from course_lib.gptsan.tensor_bundle import fields, varints
from tensorboard.compat.tensorflow_stub import errors
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New


def read_examples(path: Path) -> Iterator[dict[str, np.ndarray]]:
    """The integer features of each record."""
    reader = PyRecordReader_New(str(path))
    while True:
        try:
            reader.GetNext()
        except errors.OutOfRangeError:
            return
        entries = (dict(fields(entry)) for _, entry in fields(dict(fields(reader.record()))[1]))
        yield {entry[1].decode(): integers(entry[2]) for entry in entries}


def integers(feature: bytes) -> np.ndarray:
    """The values of a Feature.int64_list."""
    packed, found, at = dict(fields(dict(fields(feature))[3]))[1], [], 0
    while at < len(packed):
        value, at = varints(packed, at, 1)
        found.append(value)
    return np.array(found, np.uint64).astype(np.int64)
