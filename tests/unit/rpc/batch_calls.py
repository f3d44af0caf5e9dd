"""Calls of the batch service, and a server of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from moorage.batches.registry import BatchLimits
from moorage.rpc.listener import Listener, ListenerSettings
from moorage_protocol import moorage_v1 as pb
from moorage_protocol.services import BATCH_METHODS
from tests.unit.rpc.echo_backend import EchoBackend
from tests.unit.rpc.messages import raw_request
from tests.unit.rpc.running import batches_of

Code = grpc.StatusCode
HEADER = pb.BatchHeader(batch_id="nightly", model_name="echo")


@asynccontextmanager
async def serving(backend: EchoBackend, limits: BatchLimits | None = None) -> AsyncIterator["grpc.aio.Channel"]:
    batches = batches_of(backend, limits)
    await batches.start()
    listener = Listener(backend, ListenerSettings("127.0.0.1:0", "0.0.0"), batches)
    async with grpc.aio.insecure_channel(await listener.start()) as channel:
        try:
            yield channel
        finally:
            await listener.stop(1.0)
            await batches.close()


def method(channel: "grpc.aio.Channel", name: str) -> Any:
    described = BATCH_METHODS[name]
    asks, answers = (["unary", "stream"][it] for it in (described.client_streaming, described.server_streaming))
    return getattr(channel, f"{asks}_{answers}")(
        described.path,
        request_serializer=described.request.SerializeToString,
        response_deserializer=described.response.FromString,
    )


def items(begin: int, end: int) -> pb.SubmitRequest:
    inputs = [
        raw_request("", ("x", "FP32", [1, 2], number.to_bytes(8, "little")), id=f"item-{number}")
        for number in range(begin, end)
    ]
    return pb.SubmitRequest(items=pb.BatchItems(items=inputs))


async def opened(channel: "grpc.aio.Channel", header: pb.BatchHeader = HEADER, after: int = 0) -> Any:
    call = method(channel, "Submit")()
    await call.write(pb.SubmitRequest(header=header, after_sequence=after))
    return call


async def events(call: Any, *, until: str = "summary") -> list[pb.BatchEvent]:
    found: list[pb.BatchEvent] = []
    while not found or found[-1].WhichOneof("kind") != until:
        message = await asyncio.wait_for(call.read(), 10.0)
        assert message is not grpc.aio.EOF, [event.WhichOneof("kind") for event in found]
        found += message.events
    return found


def of_kind(found: Sequence[pb.BatchEvent], kind: str) -> list[Any]:
    return [getattr(event, kind) for event in found if event.WhichOneof("kind") == kind]


async def code_of(awaited: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaited
    return caught.value.code()


async def text_of(awaited: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaited
    assert caught.value.code() is Code.INVALID_ARGUMENT
    return str(caught.value.details())
