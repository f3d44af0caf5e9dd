"""ModelStreamInfer of models that answer as often as they like."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import grpc
import pytest

from moorage.rpc.outbox import Window
from moorage_protocol import inference as pb
from tests.unit.rpc.echo_backend import EchoBackend, served
from tests.unit.rpc.messages import raw_request
from tests.unit.rpc.running import call, connected, on_loop
from tests.unit.rpc.test_listener import ANY, FLAT
from tests.unit.rpc.test_streaming import FULL, ids, numbered, opened, send

MANY = replace(FLAT, name="many", decoupled=True)


def backend_of_both() -> EchoBackend:
    """`echo` answers once, and `many` as often as it is told to."""
    return EchoBackend(served(FLAT), served(MANY))


def asked(number: int, answers: int, **parameters: Any) -> pb.ModelInferRequest:
    request = numbered(number, "many")
    request.parameters["answers"].int64_param = answers
    for name, value in parameters.items():
        request.parameters[name].bool_param = value
    return request


def is_final(answer: Any) -> bool:
    final: bool = answer.infer_response.parameters["triton_final_response"].bool_param
    return final


@on_loop
async def test_every_answer_is_sent_and_the_end_is_told_to_whoever_asks() -> None:
    async with connected(backend_of_both()) as channel:
        stream = opened(channel)
        told = asked(2, 3, triton_enable_empty_final_response=True)
        await send(stream, (asked(1, 3), told, asked(3, 0), asked(4, 0, triton_enable_empty_final_response=True)))
        answers = [answer async for answer in stream]
        assert Counter(ids(answers)) == {"1": 3, "2": 4, "4": 1}
        assert [answer.infer_response.id for answer in answers if is_final(answer)] in (["2", "4"], ["4", "2"])
        for answer in answers:
            response = answer.infer_response
            assert (response.model_name, response.model_version) == ("many", "1")
            assert "triton_final_response" in response.parameters
            number = int(response.id)
            assert list(response.raw_output_contents) == ([] if is_final(answer) else [number.to_bytes(8, "little")])


@on_loop
async def test_their_answers_come_between_those_of_others_which_stay_in_order() -> None:
    backend = backend_of_both()
    async with connected(backend) as channel:
        stream = opened(channel)
        requests = [numbered(number) if number % 2 else asked(number, 5) for number in range(20)]
        await send(stream, requests)
        answers = [answer async for answer in stream]
        assert Counter(ids(answers)) == {str(number): 1 if number % 2 else 5 for number in range(20)}
        ordered = [answer for answer in answers if answer.infer_response.model_name == "echo"]
        assert ids(ordered) == [str(number) for number in range(20) if number % 2]
        assert all(map(is_final, ordered))


@on_loop
async def test_a_failure_comes_after_the_answers_before_it_and_is_the_last() -> None:
    backend = backend_of_both()
    backend.failure = FULL
    async with connected(backend) as channel:
        stream = opened(channel)
        await send(stream, (asked(1, 2),))
        answers = [answer async for answer in stream]
        assert [bool(answer.error_message) for answer in answers] == [False, False, True]
        assert answers[-1].error_message.startswith("[request id: 1] RESOURCE_EXHAUSTED: ")
        assert [is_final(answer) for answer in answers] == [False, False, True]
        assert await stream.code() is grpc.StatusCode.OK


@on_loop
async def test_a_failure_ends_a_stream_that_asked_for_it() -> None:
    backend = backend_of_both()
    backend.failure = FULL
    async with connected(backend) as channel:
        stream = opened(channel, metadata=(("triton_grpc_error", "true"),))
        await send(stream, (asked(1, 0),), end=False)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@on_loop
async def test_who_does_not_read_pauses_them_and_gets_all_answers_later() -> None:
    backend = EchoBackend(served(replace(ANY, name="many", decoupled=True)))
    async with connected(backend, Window(max_requests=8)) as channel:
        stream = opened(channel)
        large = raw_request("many", ("x", "FP32", [1, 250_000], bytes(1_000_000)), id="1")
        large.parameters["answers"].int64_param = 100
        await send(stream, (large,))
        await asyncio.sleep(1.0)
        before = backend.emitted
        await asyncio.sleep(0.3)
        assert backend.emitted == before < 40  # what gRPC holds, and the window
        assert len([answer async for answer in stream]) == 100


@on_loop
async def test_last_answers_that_are_not_taken_keep_the_server_from_reading() -> None:
    backend = EchoBackend(served(replace(ANY, name="many", decoupled=True)))
    large = raw_request("many", ("x", "FP32", [1, 250_000], bytes(1_000_000)), id="1")
    large.parameters["answers"].int64_param = 0
    large.parameters["last"].bool_param = True
    async with connected(backend, Window(max_requests=8)) as channel:
        stream = opened(channel)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send(stream, (large for _ in range(100))))
            await asyncio.sleep(1.0)
            assert len(backend.asked) < 40
            answers = [answer async for answer in stream]
        assert len(answers) == 100
        assert all(map(is_final, answers))


@on_loop
async def test_what_is_no_failure_of_ours_ends_the_stream() -> None:
    backend = backend_of_both()
    backend.failure = RuntimeError("a bug")
    async with connected(backend) as channel:
        stream = opened(channel)
        await send(stream, (asked(1, 1),), end=False)
        await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert "a bug" not in str(caught.value.details())


@on_loop
async def test_a_cancelled_stream_takes_them_along() -> None:
    backend = backend_of_both()
    async with connected(backend) as channel:
        stream = opened(channel)
        await send(stream, (asked(1, 10**9),), end=False)
        await stream.read()
        (request,) = backend.asked.values()
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(request, 5)


@on_loop
async def test_a_unary_call_of_one_is_refused() -> None:
    async with connected(backend_of_both()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel, "ModelInfer", asked(1, 2))
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "doesn't support models with decoupled transaction policy" in str(caught.value.details())
