"""TFRecord files of tf.train.Example with integer features, without TensorFlow. Framing and checksums are tensorboard's, messages protobuf's.

The messages are the integer half of tensorflow/core/example/{example,feature}.proto. What a map is to protobuf is on the wire a
repeated message of key and value; written so, the order of the features and thereby the bytes are always the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tensorboard.compat.tensorflow_stub import errors
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
from tensorboard.summary.writer.record_writer import RecordWriter

from course_lib.errors import CourseError

Features = Mapping[str, npt.NDArray[np.integer[Any]]]
MESSAGES = {  # name → fields: name, number, type, repeated
    "Int64List": [("value", 1, "int64", True)],
    "Feature": [("int64_list", 3, "Int64List", False)],
    "Entry": [("key", 1, "string", False), ("value", 2, "Feature", False)],
    "Features": [("feature", 1, "Entry", True)],
    "Example": [("features", 1, "Features", False)],
}


def write_examples(file: IO[bytes], examples: Iterable[Features]) -> None:
    """Appends a record per example to an open file."""
    writer = RecordWriter(file)
    for features in examples:
        message = _example()()
        for name, values in features.items():
            message.features.feature.add(key=name).value.int64_list.value.extend(values.tolist())
        writer.write(message.SerializeToString())


def read_examples(path: Path) -> Iterator[dict[str, npt.NDArray[np.int64]]]:
    """The integer features of each record. Raises CourseError naming the record whose checksum, length or message is wrong."""
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


@cache
def _example() -> Any:
    """The class of the messages, in a pool of its own: beside TensorFlow's it would be there twice."""
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
            if kind in MESSAGES:
                message.field.add(
                    name=field, number=number, label=label, type=types.TYPE_MESSAGE, type_name=f".tensorflow.{kind}"
                )
            else:
                message.field.add(name=field, number=number, label=label, type=types.Type.Value(f"TYPE_{kind.upper()}"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
