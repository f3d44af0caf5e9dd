"""ModelStreamInfer with NVIDIA's Python client, blocking and asyncio."""

import asyncio
import queue
from collections.abc import AsyncIterator
from typing import Any

import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

from tests.e2e.clients.served_examples import NAMES, ServedExample
from tests.e2e.clients.test_tritonclient import ANSWER_LIMIT_S, inputs_of
from tests.support.running_server import RunningServer


def test_one_blocking_stream_of_all_models_in_order(server: RunningServer, examples: dict[str, ServedExample]) -> None:
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with triton.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        asked = (*NAMES, "nobody") * 4
        for number, name in enumerate(asked):
            example = examples.get(name, examples["identity"])
            client.async_stream_infer(name, inputs_of(example), request_id=str(number), priority=number % 6)
        for number, name in enumerate(asked):
            result, error = answers.get(timeout=ANSWER_LIMIT_S)
            _check_streamed(examples, number, name, result, error)


def test_one_asyncio_stream_of_all_models_in_order(server: RunningServer, examples: dict[str, ServedExample]) -> None:
    asked = (*NAMES, "nobody") * 4

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number, name in enumerate(asked):
            example = examples.get(name, examples["identity"])
            yield {"model_name": name, "inputs": inputs_of(example), "request_id": str(number)}

    async def ask() -> list[tuple[Any, Any]]:
        async with triton_aio.InferenceServerClient(server.grpc) as client:
            return [answer async for answer in client.stream_infer(requests(), stream_timeout=ANSWER_LIMIT_S)]

    for number, (name, (result, error)) in enumerate(zip(asked, asyncio.run(ask()), strict=True)):
        _check_streamed(examples, number, name, result, error)


def _check_streamed(examples: dict[str, ServedExample], number: int, name: str, result: Any, error: Any) -> None:
    if name == "nobody":
        assert str(error).startswith(f"[request id: {number}] NOT_FOUND: "), error
        return
    assert error is None, error
    assert result.get_response().id == str(number)
    assert result.get_response().parameters["triton_final_response"].bool_param
    examples[name].check(result.as_numpy(examples[name].output_name))
