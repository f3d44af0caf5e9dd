"""Calls of the admin service, and a server of it alone."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status

from moorage.rpc.admin import Admin
from moorage.rpc.ports import Backend
from moorage_protocol.services import ADMIN_METHODS

if TYPE_CHECKING:
    Channel = grpc.aio.Channel


def ask(channel: "Channel", method: str, request: Message) -> Awaitable[Any]:
    """One unary call."""
    described = ADMIN_METHODS[method]
    stub = channel.unary_unary(
        described.path,
        request_serializer=described.request.SerializeToString,
        response_deserializer=described.response.FromString,
    )
    return stub(request, timeout=20.0)


def stream(channel: "Channel", method: str, request: Message, **options: Any) -> Any:
    """One call that is answered with many messages. Await its `read`."""
    described = ADMIN_METHODS[method]
    stub = channel.unary_stream(
        described.path,
        request_serializer=described.request.SerializeToString,
        response_deserializer=described.response.FromString,
    )
    return stub(request, **{"timeout": 20.0} | options)


async def failure(answer: Awaitable[Any]) -> grpc.aio.AioRpcError:
    """How a call fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer
    return caught.value


def figures(error: grpc.aio.AioRpcError) -> dict[str, str]:
    """What its ErrorInfo says."""
    packed = dict(error.trailing_metadata())["grpc-status-details-bin"]
    info = details.ErrorInfo()
    assert isinstance(packed, bytes)
    assert Status.FromString(packed).details[0].Unpack(info)
    return dict(info.metadata)


async def until(look: Callable[[], bool]) -> None:
    """Wait for what comes about by itself."""
    deadline_s = time.monotonic() + 10.0
    while not look():
        assert time.monotonic() < deadline_s, "it did not come about within 10 s"
        await asyncio.sleep(0.01)


async def until_still(count: Callable[[], int]) -> None:
    """Wait until something that grows has not grown for a while."""
    last_count, since_s = count(), time.monotonic()

    def still() -> bool:
        nonlocal last_count, since_s
        if count() != last_count:
            last_count, since_s = count(), time.monotonic()
        return time.monotonic() - since_s > 0.3

    await until(still)


@asynccontextmanager
async def administered(backend: Backend, keepalive_s: float) -> AsyncIterator[tuple[Admin, str]]:
    """A server of this service alone, whose streams are never silent for longer; and its address."""
    admin = Admin(backend, keepalive_s)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((admin.handler(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield admin, address
    finally:
        admin.close()
        await server.stop(5.0)
