"""The private descriptor pool, and Python classes for what it describes."""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


def _read_descriptors() -> FileDescriptorSet:
    """What the build hook compiled. ImportError: the package was not built."""
    path = files("moorage_protocol") / "descriptors.binpb"
    try:
        return FileDescriptorSet.FromString(path.read_bytes())
    except FileNotFoundError:
        raise ImportError(
            f"{path} is missing: it is compiled from protos/ when the package is built. "
            "In a checkout of Moorage run `pip install -e .`, or install a released wheel."
        ) from None


def _build_pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in _DESCRIPTORS.file:  # imports come first
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def files_of(package: str) -> Iterator[FileDescriptorProto]:
    """The files that declare the proto package `package`."""
    return (file for file in _DESCRIPTORS.file if file.package == package)


def namespace(package: str) -> dict[str, Any]:
    """What a generated module would define for `package`: message classes, enums, values of top-level enums."""
    names: dict[str, Any] = {}
    for file in files_of(package):
        for message in file.message_type:
            names[message.name] = _message_class(POOL.FindMessageTypeByName(f"{package}.{message.name}"))
        for enum in file.enum_type:
            names[enum.name] = EnumTypeWrapper(POOL.FindEnumTypeByName(f"{package}.{enum.name}"))
            names |= {value.name: value.number for value in enum.value}
    return names


def _message_class(descriptor: Descriptor) -> type[Message]:
    """The class with its nested classes as attributes, which protobuf's pure Python form does not give it."""
    message_class = GetMessageClass(descriptor)
    for nested in descriptor.nested_types:
        nested_class = _message_class(nested)
        if not hasattr(message_class, nested.name):
            setattr(message_class, nested.name, nested_class)
    return message_class


_DESCRIPTORS: Final = _read_descriptors()

POOL: Final = _build_pool()
"""Holds every message, enum and service of this package; nothing of it is in protobuf's default pool."""
