"""ModelStreamInfer over the wire, by the rules that Triton's clients rely on."""

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
import pytest

from moorage.domain.errors import QueueFull
from moorage.domain.tensor import TensorSpec
from moorage.rpc.listener import Listener, ListenerSettings
from moorage.rpc.outbox import Window
from moorage_protocol import inference as pb
from moorage_protocol.services import INFERENCE_METHODS
from tests.unit.rpc.echo_backend import EchoBackend, echo_spec, served
from tests.unit.rpc.messages import raw_request
from tests.unit.rpc.running import batches_of, connected, on_loop
from tests.unit.rpc.test_listener import echoing

METHOD = INFERENCE_METHODS["ModelStreamInfer"]
FULL = QueueFull("echo", unit="rows", waiting=4, asked=1, limit=4, retry_after_s=0.5)


def numbered(number: int, model: str = "echo", **fields: Any) -> pb.ModelInferRequest:
    data = number.to_bytes(8, "little")
    return raw_request(model, ("x", "FP32", [1, 2], data), id=str(number), **fields)


def opened(channel: "grpc.aio.Channel", **options: Any) -> Any:
    """A stream, to be written to and read from."""
    stub = channel.stream_stream(
        METHOD.path,
        request_serializer=METHOD.request.SerializeToString,
        response_deserializer=METHOD.response.FromString,
    )
    return stub(**options)


async def send(stream: Any, requests: Iterable[pb.ModelInferRequest], *, end: bool = True) -> None:
    for request in requests:
        await stream.write(request)
    if end:
        await stream.done_writing()


def ids(answers: Iterable[Any]) -> list[str]:
    return [answer.infer_response.id for answer in answers]


@on_loop
async def test_answers_come_in_the_order_of_the_requests_and_the_stream_ends_well() -> None:
    async with connected(echoing()) as channel:
        stream = opened(channel)
        await send(stream, (numbered(number, "any" if number % 3 else "echo") for number in range(50)))
        answers = [answer async for answer in stream]
        assert ids(answers) == [str(number) for number in range(50)]
        for number, answer in enumerate(answers):
            assert answer.error_message == ""
            assert answer.infer_response.raw_output_contents[0] == number.to_bytes(8, "little")
            assert answer.infer_response.parameters["triton_final_response"].bool_param
        assert await stream.code() is grpc.StatusCode.OK


@on_loop
async def test_what_fails_is_answered_in_its_place_and_the_stream_goes_on() -> None:
    async with connected(echoing()) as channel:
        stream = opened(channel)
        await send(stream, (numbered(1), numbered(2, "nobody"), numbered(3)))
        first, second, third = [answer async for answer in stream]
        assert (first.error_message, third.error_message) == ("", "")
        assert second.error_message == ("[request id: 2] NOT_FOUND: Request for unknown model: 'nobody' is not found")
        assert (second.infer_response.id, second.infer_response.model_name) == ("2", "nobody")
        assert await stream.code() is grpc.StatusCode.OK


@on_loop
async def test_bytes_that_are_no_request_have_an_unknown_id() -> None:
    async with connected(echoing()) as channel:
        stub: Any = channel.stream_stream(METHOD.path, response_deserializer=METHOD.response.FromString)
        stream = stub()
        await stream.write(b"\xff\xff")
        await stream.done_writing()
        (answer,) = [answer async for answer in stream]
        assert answer.error_message.startswith("[request id: <id_unknown>] INVALID_ARGUMENT: ")


@on_loop
async def test_the_first_failure_ends_a_stream_that_asked_for_it() -> None:
    backend = echoing()
    backend.failure = FULL
    async with connected(backend) as channel:
        stream = opened(channel, metadata=(("triton_grpc_error", "true"),))
        await send(stream, (numbered(1), numbered(2)))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"] == "500"


@on_loop
async def test_no_more_is_read_than_the_window_holds() -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    async with connected(backend, Window(max_requests=4)) as channel:
        stream = opened(channel)
        await send(stream, (numbered(number) for number in range(40)))
        await asyncio.sleep(0.2)
        assert len(backend.requests) == 4
        backend.gate.set()
        assert ids([answer async for answer in stream]) == [str(number) for number in range(40)]


@on_loop
async def test_the_window_is_full_by_its_bytes_too_but_never_keeps_a_single_request_out() -> None:
    backend = EchoBackend(served(echo_spec("any", TensorSpec("x", "FP32", [-1, -1]))))
    backend.gate = asyncio.Event()
    async with connected(backend, Window(max_bytes=1000)) as channel:
        stream = opened(channel)
        large = raw_request("any", ("x", "FP32", [1, 500], bytes(2000)))
        await send(stream, (large, large))
        await asyncio.sleep(0.2)
        assert len(backend.requests) == 1
        backend.gate.set()
        assert len([answer async for answer in stream]) == 2


@on_loop
async def test_a_client_that_does_not_read_keeps_the_server_from_reading() -> None:
    backend = EchoBackend(served(echo_spec("any", TensorSpec("x", "FP32", [-1, -1]))))
    large = raw_request("any", ("x", "FP32", [1, 1_000_000], bytes(4_000_000)))
    async with connected(backend, Window(max_requests=4)) as channel:
        stream = opened(channel)
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(send(stream, (large for _ in range(40))))
            await asyncio.sleep(1.0)
            assert len(backend.requests) < 12
            assert not writing.done()
            assert len([answer async for answer in stream]) == 40


@on_loop
async def test_a_cancelled_stream_takes_its_requests_along() -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    async with connected(backend) as channel:
        stream = opened(channel)
        await send(stream, (numbered(number) for number in range(3)), end=False)
        await asyncio.wait_for(backend.entered.wait(), 5)
        stream.cancel()
        await asyncio.wait_for(backend.cancelled.wait(), 5)


@on_loop
async def test_a_server_that_stops_answers_what_it_has_read_and_ends_the_stream() -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    listener = Listener(backend, ListenerSettings("127.0.0.1:0", "0.0.0"), batches_of(backend))
    async with grpc.aio.insecure_channel(await listener.start()) as channel:
        stream, idle = opened(channel), opened(channel)
        await send(idle, (), end=False)
        await send(stream, (numbered(1),), end=False)
        await asyncio.wait_for(backend.entered.wait(), 5)
        stopping = asyncio.ensure_future(listener.stop(grace_s=30.0))
        await asyncio.sleep(0)
        backend.gate.set()
        assert ids([await stream.read()]) == ["1"]
        await asyncio.wait_for(stopping, 10)
        assert await stream.code() is grpc.StatusCode.UNAVAILABLE
