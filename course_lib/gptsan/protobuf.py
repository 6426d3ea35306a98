"""Protocol-buffer message classes, built from tables of fields."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Message → (field name, number, type, repeated). The type is a scalar type or the name of an earlier message.
Messages = dict[str, list[tuple[str, int, str, bool]]]


def message_classes(messages: Messages) -> dict[str, Any]:
    """Return the class of each message by its name.

    The classes have their own descriptor pool, because in the default pool they would conflict with TensorFlow's.
    """
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="messages.proto", package="messages", syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            added = message.field.add(name=field, number=number)
            added.label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
            if kind in messages:
                added.type, added.type_name = types.TYPE_MESSAGE, f".messages.{kind}"
            else:
                added.type = types.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"messages.{name}")) for name in messages}
