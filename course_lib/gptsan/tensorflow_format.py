"""What TFRecord files and TensorFlow checkpoints share, without TensorFlow: protobuf messages and masked checksums."""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google_crc32c import extend

from course_lib.files import CHUNK

# Message → (field name, number, type, repeated). The type is a scalar type or another message in the table.
Messages = Mapping[str, Sequence[tuple[str, int, str, bool]]]


def message_classes(messages: Messages) -> dict[str, Any]:
    """Return the protobuf classes for a table of messages, by name.

    The classes have their own descriptor pool, because they would conflict with TensorFlow classes in the default pool.
    """
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="messages.proto", package="messages", syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
            if kind in messages:
                of = {"type": types.TYPE_MESSAGE, "type_name": f".messages.{kind}"}
            else:
                of = {"type": types.Type.Value(f"TYPE_{kind.upper()}")}
            message.field.add(name=field, number=number, label=label, **of)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"messages.{name}")) for name in messages}


def masked_crc32c(data: Any) -> int:
    """Return the CRC32C of a buffer, masked as leveldb does: a CRC of data that contains CRCs is weak."""
    crc = 0
    for start in range(0, len(data), CHUNK):
        crc = extend(crc, bytes(data[start : start + CHUNK]))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
