"""Reads TFRecord files with tensorboard's reader, which checks every checksum."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from course_lib.gptsan.tfrecord import example_class
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
        entries = example_class().FromString(reader.record()).features.feature
        yield {entry.key: np.array(entry.value.int64_list.value, np.int64) for entry in entries}
