"""Server reflection, so that grpcurl and Postman need no .proto files."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

from moorage.rpc.guard import parse, two_way_stream
from moorage.rpc.health import SERVICE as HEALTH_SERVICE
from moorage_protocol import POOL
from moorage_protocol.services import ADMIN_SERVICE, BATCH_SERVICE, INFERENCE_SERVICE

if TYPE_CHECKING:
    from moorage.rpc.guard import Context

_NAMES = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)
"""The package at hand has v1alpha only; v1 is the same messages under another name."""


class _Pools:
    """Looks into our private pool first, then into the default one, where health and reflection are described."""

    def __getattr__(self, finder: str) -> Any:
        def find(*arguments: object) -> Any:
            try:
                return getattr(POOL, finder)(*arguments)
            except KeyError:
                return getattr(descriptor_pool.Default(), finder)(*arguments)

        return find


class Reflection:
    """Tells what services there are, and what they look like."""

    def __init__(self) -> None:
        services = (INFERENCE_SERVICE, BATCH_SERVICE, ADMIN_SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME)
        self._servicer = reflection.aio.ReflectionServicer(services, pool=_Pools())
        self._closing = asyncio.Event()

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """What a server registers."""
        methods = {"ServerReflectionInfo": two_way_stream(self._info)}
        return tuple(grpc.method_handlers_generic_handler(name, methods) for name in _NAMES)

    def close(self) -> None:
        """End all conversations, so that they do not hold up the server's stop."""
        self._closing.set()

    async def _info(self, bodies: AsyncIterator[bytes], context: "Context") -> AsyncGenerator[bytes]:
        async for answer in self._servicer.ServerReflectionInfo(self._requests(bodies), context):
            yield answer.SerializeToString()

    async def _requests(self, bodies: AsyncIterator[bytes]) -> AsyncGenerator[Any]:
        """What the client asks, until it has asked all, or until `close`."""
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while not self._closing.is_set():
                following = asyncio.ensure_future(anext(bodies, None))
                try:
                    await asyncio.wait((following, closing), return_when=asyncio.FIRST_COMPLETED)
                    body = following.result() if following.done() else None
                finally:
                    following.cancel()
                if body is None:
                    return
                yield parse(reflection_pb2.ServerReflectionRequest, body)
        finally:
            closing.cancel()
