"""The methods of each service, read from the descriptors, so that no generated gRPC code is needed."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from moorage_protocol.pool import POOL

INFERENCE_SERVICE: Final = "inference.GRPCInferenceService"
ADMIN_SERVICE: Final = "moorage.v1.AdminService"
BATCH_SERVICE: Final = "moorage.v1.BatchService"


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a service, as a client calls it and a server registers it."""

    name: str
    path: str
    """As gRPC sends it: `/package.Service/Name`."""
    request: type[Message]
    response: type[Message]
    client_streaming: bool
    server_streaming: bool


def methods(service: str) -> Mapping[str, Method]:
    """Name to method, in the order of declaration. KeyError: no such service, `service` being its full name."""
    declared = POOL.FindServiceByName(service).methods
    return MappingProxyType({method.name: _method(service, method) for method in declared})


def _method(service: str, method: MethodDescriptor) -> Method:
    return Method(
        name=method.name,
        path=f"/{service}/{method.name}",
        request=GetMessageClass(method.input_type),
        response=GetMessageClass(method.output_type),
        client_streaming=method.client_streaming,
        server_streaming=method.server_streaming,
    )


INFERENCE_METHODS: Final = methods(INFERENCE_SERVICE)
ADMIN_METHODS: Final = methods(ADMIN_SERVICE)
BATCH_METHODS: Final = methods(BATCH_SERVICE)
