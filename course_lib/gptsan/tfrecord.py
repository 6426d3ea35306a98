"""Writer for TFRecord files of tf.train.Example messages with integer features, without TensorFlow.

The messages are those in tensorflow/core/example/{example,feature}.proto, with integer features only. The .proto file
declares the features as a map, which is serialized as a repeated message with a key and a value. MESSAGES declares that
message directly, so the order of the features, and with it every byte of the file, is always the same.
"""

import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from course_lib.gptsan.tensorflow_format import Messages, masked_crc32c, message_classes

MESSAGES: Messages = {
    "Int64List": [("value", 1, "int64", True)],
    "Feature": [("int64_list", 3, "Int64List", False)],
    "Entry": [("key", 1, "string", False), ("value", 2, "Feature", False)],
    "Features": [("feature", 1, "Entry", True)],
    "Example": [("features", 1, "Features", False)],
}


@cache
def example_class() -> Any:
    """Return the protobuf class of an example."""
    return message_classes(MESSAGES)["Example"]


def write_examples(file: IO[bytes], examples: Iterable[Mapping[str, npt.NDArray[np.integer[Any]]]]) -> None:
    """Append one record per example to an open file: length, checksum, message, checksum."""
    for features in examples:
        message = example_class()()
        for name, values in features.items():
            message.features.feature.add(key=name).value.int64_list.value.extend(values.tolist())
        content = message.SerializeToString()
        length = struct.pack("<Q", len(content))
        # tensorboard's writer computes the checksums in Python, which takes 2.7 ms for an example of 1280 tokens.
        for part in length, content:
            file.write(part + struct.pack("<I", masked_crc32c(part)))
