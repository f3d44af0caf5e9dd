"""A real server round a backend, for the length of a test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from moorage.batches.registry import Batches, BatchLimits
from moorage.rpc.batch_edge import BatchEdge
from moorage.rpc.listener import Listener, ListenerSettings
from moorage.rpc.outbox import Window
from moorage.rpc.ports import Backend
from moorage_protocol.services import INFERENCE_METHODS

if TYPE_CHECKING:
    Channel = grpc.aio.Channel


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine on an event loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def batches_of(backend: Backend, limits: BatchLimits | None = None) -> Batches:
    """Batches round a backend: none of them durable, unless the limits name a store."""
    return Batches(backend, BatchEdge(backend), limits or BatchLimits())


@asynccontextmanager
async def listening(
    backend: Backend, max_receive_bytes: int = 64 * 1024 * 1024, window: Window | None = None
) -> AsyncIterator[str]:
    """The address of a server, on a port that was free."""
    settings = ListenerSettings("127.0.0.1:0", "0.0.0", max_receive_bytes, window=window or Window())
    listener = Listener(backend, settings, batches_of(backend))
    address = await listener.start()
    try:
        yield address
    finally:
        await listener.stop(grace_s=5.0)


@asynccontextmanager
async def connected(backend: Backend, window: Window | None = None) -> AsyncIterator["grpc.aio.Channel"]:
    """A channel to a server round the backend."""
    async with listening(backend, window=window) as address, grpc.aio.insecure_channel(address) as channel:
        yield channel


def call(channel: "grpc.aio.Channel", method: str, request: Message, **options: Any) -> Awaitable[Any]:
    """One call of the inference service."""
    described = INFERENCE_METHODS[method]
    stub = channel.unary_unary(
        described.path,
        request_serializer=described.request.SerializeToString,
        response_deserializer=described.response.FromString,
    )
    return stub(request, **options)
