"""ModelStreamInfer with NVIDIA's Python client, blocking and asyncio."""

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

from tests.e2e.clients.served_examples import NAMES, ServedExample
from tests.e2e.clients.test_tritonclient import ANSWER_LIMIT_S, inputs_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import write_python_model

# Answers x, 2x, 3x, and as many more as it is asked for.
_MULTIPLES = """
    from moorage import Model

    class Multiples(Model):
        def infer(self, inputs, batch):
            for number in range(1, 1 + batch.requests[0].parameters["answers"]):
                yield {"y": inputs["x"] * number}
"""


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


@pytest.fixture(scope="module")
def decoupled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose model answers as often as it is told to."""
    folder = tmp_path_factory.mktemp("decoupled")
    write_python_model(folder / "models", "multiples", _MULTIPLES, top="decoupled = true\n")
    with running_server(folder / "models", folder) as server, triton.InferenceServerClient(server.grpc) as client:
        eventually(client.is_server_ready, within_s=30.0, what="the server is ready")
        yield server.grpc


def _x(value: float) -> list[Any]:
    tensor = triton.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.full((1, 4), value, np.float32))
    return [tensor]


def test_a_blocking_stream_of_a_decoupled_model(decoupled: str) -> None:
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with triton.InferenceServerClient(decoupled) as client:
        assert client.get_model_config("multiples").config.model_transaction_policy.decoupled
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(3):
            client.async_stream_infer(
                "multiples",
                _x(number),
                request_id=str(number),
                parameters={"answers": 20},
                enable_empty_final_response=True,
            )
        found: dict[str, list[float]] = {str(number): [] for number in range(3)}
        ended = 0
        while ended < 3:
            result, error = answers.get(timeout=ANSWER_LIMIT_S)
            assert error is None, error
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                ended += 1
                assert result.as_numpy("y") is None
            else:
                found[response.id].append(float(result.as_numpy("y")[0, 0]))
        client.stop_stream()
    assert found == {str(number): [float(number * times) for times in range(1, 21)] for number in range(3)}


def test_an_asyncio_stream_of_a_decoupled_model(decoupled: str) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "multiples", "inputs": _x(2), "parameters": {"answers": 50}}

    async def ask() -> list[tuple[Any, Any]]:
        async with triton_aio.InferenceServerClient(decoupled) as client:
            return [answer async for answer in client.stream_infer(requests(), stream_timeout=ANSWER_LIMIT_S)]

    answers = asyncio.run(ask())
    assert [error for _, error in answers] == [None] * 50
    assert [float(result.as_numpy("y")[0, 0]) for result, _ in answers] == [2.0 * times for times in range(1, 51)]
