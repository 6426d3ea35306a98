"""Reader and writer for TFRecord files of tf.train.Example messages with integer features, without TensorFlow.

tensorboard writes the record framing and the checksums; protobuf writes the messages. The messages are those in
tensorflow/core/example/{example,feature}.proto, with integer features only. The .proto file declares the features as a
map, which is serialized as a repeated message with a key and a value. MESSAGES declares that message directly, so the
order of the features, and with it every byte of the file, is always the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from tensorboard.compat.tensorflow_stub import errors
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
from tensorboard.summary.writer.record_writer import RecordWriter

from course_lib.errors import CourseError
from course_lib.gptsan.messages import Messages, message_classes

MESSAGES: Messages = {
    "Int64List": [("value", 1, "int64", True)],
    "Feature": [("int64_list", 3, "Int64List", False)],
    "Entry": [("key", 1, "string", False), ("value", 2, "Feature", False)],
    "Features": [("feature", 1, "Entry", True)],
    "Example": [("features", 1, "Features", False)],
}


@cache
def _example() -> Any:
    return message_classes(MESSAGES)["Example"]


def write_examples(file: IO[bytes], examples: Iterable[Mapping[str, npt.NDArray[np.integer[Any]]]]) -> None:
    """Append one record per example to an open file."""
    writer = RecordWriter(file)
    for features in examples:
        message = _example()()
        for name, values in features.items():
            message.features.feature.add(key=name).value.int64_list.value.extend(values.tolist())
        writer.write(message.SerializeToString())


def read_examples(path: Path) -> Iterator[dict[str, npt.NDArray[np.int64]]]:
    """Yield the integer features of each record, by name.

    Raises CourseError if the file is missing or a record is damaged; the message names the record.
    """
    if not path.is_file():
        raise CourseError(f"{path}: no such file")
    reader, number = PyRecordReader_New(str(path)), 0
    while True:
        number += 1
        try:
            reader.GetNext()
            entries = _example().FromString(reader.record()).features.feature
        except errors.OutOfRangeError:
            return
        except (errors.DataLossError, DecodeError) as error:
            raise CourseError(f"{path}, record {number}: damaged: {str(error).removeprefix(f'{path} ')}") from None
        yield {entry.key: np.array(entry.value.int64_list.value, np.int64) for entry in entries}
