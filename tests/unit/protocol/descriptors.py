"""A flat picture of .proto files, in which two libraries' descriptors can be compared with `==`."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)


@dataclass(frozen=True, slots=True)
class Field:
    """All that decides how a field travels and how it is reached from Python."""

    number: int
    type: str
    label: str = "LABEL_OPTIONAL"
    type_name: str = ""
    oneof: str = ""
    has_presence_bit: bool = False
    json_name: str = ""
    """Empty where it is the one that follows from the field's name."""
    options: bytes = b""


@dataclass(frozen=True, slots=True)
class Message:
    is_map_entry: bool = False
    options: bytes = b""
    reserved: bytes = b""


@dataclass(frozen=True, slots=True)
class Enum:
    values: tuple[tuple[str, int], ...]
    options: bytes = b""


@dataclass(frozen=True, slots=True)
class Rpc:
    request: str
    response: str
    client_streaming: bool
    server_streaming: bool


Element = Field | Message | Enum | Rpc


def flatten(files: Iterable[FileDescriptorProto]) -> dict[str, Element]:
    """Full name to element, for every message, field, enum and RPC however deeply nested. No name comes twice."""
    pairs = [pair for file in files for pair in _of_file(file)]
    names = dict(pairs)
    assert len(names) == len(pairs)
    return names


def _of_file(file: FileDescriptorProto) -> Iterator[tuple[str, Element]]:
    assert file.syntax == "proto3"
    for message in file.message_type:
        yield from _of_message(message, f"{file.package}.{message.name}")
    for enum in file.enum_type:
        yield _of_enum(enum, file.package)
    for service in file.service:
        yield from _of_service(service, f"{file.package}.{service.name}")


def _of_message(message: DescriptorProto, name: str) -> Iterator[tuple[str, Element]]:
    reserved = DescriptorProto(reserved_range=message.reserved_range, reserved_name=message.reserved_name)
    yield (
        name,
        Message(
            is_map_entry=message.options.map_entry,
            options=message.options.SerializeToString(deterministic=True),
            reserved=reserved.SerializeToString(deterministic=True),
        ),
    )
    for field in message.field:
        yield f"{name}.{field.name}", _field(field, message)
    for nested in message.nested_type:
        yield from _of_message(nested, f"{name}.{nested.name}")
    for enum in message.enum_type:
        yield _of_enum(enum, name)


def _field(field: FieldDescriptorProto, message: DescriptorProto) -> Field:
    return Field(
        number=field.number,
        type=FieldDescriptorProto.Type.Name(field.type),
        label=FieldDescriptorProto.Label.Name(field.label),
        type_name=field.type_name,
        oneof=message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else "",
        has_presence_bit=field.proto3_optional,
        json_name="" if field.json_name == _default_json_name(field.name) else field.json_name,
        options=field.options.SerializeToString(deterministic=True),
    )


def _default_json_name(name: str) -> str:
    """`model_name` becomes `modelName`. Descriptor sets spell it out, generated modules leave it out."""
    return re.sub("_(.?)", lambda match: match[1].upper(), name)


def _of_enum(enum: EnumDescriptorProto, scope: str) -> tuple[str, Enum]:
    values = tuple((value.name, value.number) for value in enum.value)
    return f"{scope}.{enum.name}", Enum(values, enum.options.SerializeToString(deterministic=True))


def _of_service(service: ServiceDescriptorProto, name: str) -> Iterator[tuple[str, Element]]:
    for method in service.method:
        rpc = Rpc(method.input_type, method.output_type, method.client_streaming, method.server_streaming)
        yield f"{name}.{method.name}", rpc
