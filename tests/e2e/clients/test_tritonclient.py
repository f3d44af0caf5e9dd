"""NVIDIA's Python client, blocking and asyncio: each test runs with both."""

import asyncio
import queue
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from tests.e2e.clients.served_examples import NAMES, ServedExample
from tests.support.running_server import RunningServer

ANSWER_LIMIT_S = 30.0

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def blocking(server: RunningServer) -> Iterator[Any]:
    with triton.InferenceServerClient(server.grpc) as client:
        yield client


@pytest.fixture(scope="module", params=["sync", "aio"])
def call(request: pytest.FixtureRequest, server: RunningServer, blocking: Any) -> Iterator[Call]:
    """Calls a method of the client by name, with a bound on the time it may take."""
    if request.param == "sync":
        yield lambda method, *args, **options: getattr(blocking, method)(*args, **_bounded(options))
        return
    with asyncio.Runner() as runner:
        client = runner.run(_opened(server.grpc))
        yield lambda method, *args, **options: runner.run(getattr(client, method)(*args, **_bounded(options)))
        runner.run(client.close())


async def _opened(address: str) -> Any:
    return triton_aio.InferenceServerClient(address)  # belongs to the loop that it is made on


def _bounded(options: dict[str, Any]) -> dict[str, Any]:
    return {"client_timeout": ANSWER_LIMIT_S, **options}


def inputs_of(example: ServedExample) -> list[Any]:
    tensor = triton.InferInput(example.input_name, list(example.sent.shape), example.datatype)
    tensor.set_data_from_numpy(example.sent)
    return [tensor]


def fails_with(status: str, text: str = "") -> Any:
    return pytest.raises(InferenceServerException, match=rf"\[StatusCode\.{status}\].*{text}")


def test_live_and_ready(call: Call) -> None:
    assert call("is_server_live")
    assert call("is_server_ready")
    assert all(call("is_model_ready", name) for name in NAMES)
    assert call("is_model_ready", "identity", "1")
    assert not call("is_model_ready", "identity", "7")
    assert not call("is_model_ready", "nobody")


def test_server_metadata(call: Call) -> None:
    metadata = call("get_server_metadata")
    assert metadata.name == "moorage"
    assert metadata.version
    assert {"statistics", "model_repository", "model_configuration"} <= set(metadata.extensions)
    assert call("get_server_metadata", as_json=True)["name"] == "moorage"


def test_model_metadata(call: Call) -> None:
    metadata = call("get_model_metadata", "embedder")
    assert metadata.name == "embedder"
    assert list(metadata.versions) == ["1"]
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [("text", "BYTES", [-1, 1])]
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == [("embedding", "FP32", [-1, 384])]


def test_model_config(call: Call) -> None:
    config = call("get_model_config", "mlp", as_json=True)["config"]
    assert config["max_batch_size"] == 32
    assert config["input"] == [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": ["1024"]}]
    assert config["output"] == [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": ["256"]}]
    assert "dynamic_batching" in config


@pytest.mark.parametrize("name", NAMES)
def test_infer(call: Call, examples: dict[str, ServedExample], name: str) -> None:
    example = examples[name]
    result = call("infer", name, inputs_of(example))
    example.check(result.as_numpy(example.output_name))
    response = result.get_response()
    assert (response.model_name, response.model_version) == (name, "1")
    assert result.get_output(example.output_name).datatype == "FP32"


def test_options_of_a_request(call: Call, examples: dict[str, ServedExample]) -> None:
    example = examples["identity"]
    result = call(
        "infer",
        "identity",
        inputs_of(example),
        model_version="1",
        outputs=[triton.InferRequestedOutput("OUTPUT0")],
        request_id="trip-17",
        priority=1,
        timeout=20_000_000,
        headers={"moorage_tenant": "harbour"},
        compression_algorithm="gzip",
        parameters={"mood": "calm", "knots": 7, "draught_m": 2.5, "moored": True},
    )
    example.check(result.as_numpy("OUTPUT0"))
    assert result.get_response().id == "trip-17"
    assert result.as_numpy("INPUT0") is None


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        ({"outputs": [triton.InferRequestedOutput("OUTPUT9")]}, "INVALID_ARGUMENT", "OUTPUT9"),
        ({"outputs": [triton.InferRequestedOutput("OUTPUT0", class_count=2)]}, "UNIMPLEMENTED", "classification"),
        ({"model_version": "7"}, "NOT_FOUND", "version"),
        ({"priority": 99}, "INVALID_ARGUMENT", "priority"),
        ({"sequence_id": 3, "sequence_start": True}, "UNIMPLEMENTED", "sequence"),
        ({"timeout": 1}, "DEADLINE_EXCEEDED", ""),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_what_a_request_cannot_have(
    call: Call, examples: dict[str, ServedExample], options: dict[str, Any], status: str, text: str
) -> None:
    with fails_with(status, text):
        call("infer", "identity", inputs_of(examples["identity"]), **options)
    assert call("is_server_ready")


def test_a_clients_own_timeout(call: Call) -> None:
    audio = np.zeros((1, 160_000), np.float32)  # 313 windows, one after the other: 0.1 s and more
    tensor = triton.InferInput("audio", list(audio.shape), "FP32")
    tensor.set_data_from_numpy(audio)
    with fails_with("DEADLINE_EXCEEDED"):
        call("infer", "vad", [tensor], client_timeout=0.02)
    assert call("is_server_ready")


def test_unknown_models_are_not_found(call: Call, examples: dict[str, ServedExample]) -> None:
    with fails_with("NOT_FOUND", "Request for unknown model: 'nobody' is not found"):
        call("infer", "nobody", inputs_of(examples["identity"]))
    for method in ("get_model_metadata", "get_model_config", "get_inference_statistics", "load_model", "unload_model"):
        with fails_with("NOT_FOUND", "nobody"):
            call(method, "nobody")


def test_statistics_count_requests_and_rows(call: Call, examples: dict[str, ServedExample]) -> None:
    # Not of vad or identity: a run whose client gave up, in the tests above, still counts, whenever it ends.
    before = _statistics(call, "mlp")
    call("infer", "mlp", inputs_of(examples["mlp"]))
    after = _statistics(call, "mlp")
    assert after.inference_count - before.inference_count == len(examples["mlp"].values)
    assert after.execution_count - before.execution_count == 1
    assert after.last_inference >= before.last_inference
    for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        earlier, later = (getattr(found.inference_stats, part) for found in (before, after))
        assert later.count - earlier.count == 1
        assert later.ns > earlier.ns
    assert after.inference_stats.fail == before.inference_stats.fail


def test_statistics_of_all_models(call: Call) -> None:
    found = call("get_inference_statistics")
    assert sorted(model.name for model in found.model_stats) == list(NAMES)
    held = {model.name: sum(usage.byte_size for usage in model.memory_usage) for model in found.model_stats}
    assert held["mlp"] >= 4 * 22_028_544  # the bytes of its parameters


def _statistics(call: Call, model: str) -> Any:
    (found,) = call("get_inference_statistics", model).model_stats
    return found


def test_repository_index(call: Call) -> None:
    index = call("get_model_repository_index")
    assert [(model.name, model.version, model.state) for model in index.models] == [
        (name, "1", "READY") for name in NAMES
    ]


def test_unload_and_load_again(call: Call, examples: dict[str, ServedExample]) -> None:
    example = examples["mlp"]
    call("unload_model", "mlp")
    try:
        assert not call("is_model_ready", "mlp")
        states = {model.name: model.state for model in call("get_model_repository_index").models}
        assert states == dict.fromkeys(NAMES, "READY") | {"mlp": "UNAVAILABLE"}
        with fails_with("UNAVAILABLE", "mlp"):
            call("infer", "mlp", inputs_of(example))
    finally:
        call("load_model", "mlp")
    assert call("is_model_ready", "mlp")
    example.check(call("infer", "mlp", inputs_of(example)).as_numpy("OUTPUT0"))


def test_loading_again_and_with_a_configuration(call: Call) -> None:
    call("load_model", "identity")
    assert call("is_model_ready", "identity")
    with fails_with("INVALID_ARGUMENT", "config"):
        call("load_model", "identity", config="{}")
    call("unload_model", "identity", unload_dependents=True)
    call("load_model", "identity")


@pytest.mark.parametrize("kind", ["system", "cuda"])
def test_there_is_no_shared_memory(call: Call, kind: str) -> None:
    assert not call(f"get_{kind}_shared_memory_status").regions
    arguments = ("region", "/key", 64) if kind == "system" else ("region", b"aGFuZGxl", 0, 64)
    with fails_with("UNIMPLEMENTED", "shared-memory"):
        call(f"register_{kind}_shared_memory", *arguments)
    call(f"unregister_{kind}_shared_memory")


@pytest.mark.parametrize("method", ["get_trace_settings", "get_log_settings"])
def test_there_are_no_settings(call: Call, method: str) -> None:
    with fails_with("UNIMPLEMENTED"):
        call(method)


def test_callbacks_of_the_blocking_client(blocking: Any, examples: dict[str, ServedExample]) -> None:
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    for name in (*NAMES, "nobody"):
        example = examples.get(name, examples["identity"])
        blocking.async_infer(
            name,
            inputs_of(example),
            lambda result, error: answers.put((result, error)),
            request_id=name,
            client_timeout=ANSWER_LIMIT_S,
        )
    arrived = [answers.get(timeout=ANSWER_LIMIT_S) for _ in range(len(NAMES) + 1)]
    results = {result.get_response().id: result for result, error in arrived if error is None}
    assert set(results) == set(NAMES)
    for name, result in results.items():
        examples[name].check(result.as_numpy(examples[name].output_name))
    (error,) = (error for _, error in arrived if error is not None)
    assert error.status() == "StatusCode.NOT_FOUND"


def test_many_at_once(server: RunningServer, examples: dict[str, ServedExample]) -> None:
    async def ask() -> list[Any]:
        async with triton_aio.InferenceServerClient(server.grpc) as client:
            calls = [client.infer(name, inputs_of(examples[name]), client_timeout=ANSWER_LIMIT_S) for name in asked]
            return await asyncio.gather(*calls)

    asked = NAMES * 8
    for name, result in zip(asked, asyncio.run(ask()), strict=True):
        examples[name].check(result.as_numpy(examples[name].output_name))


def test_tensors_without_elements(call: Call) -> None:
    tensor = triton.InferInput("audio", [2, 0], "FP32")
    tensor.set_data_from_numpy(np.empty((2, 0), np.float32))
    assert call("infer", "vad", [tensor]).as_numpy("probability").shape == (2, 0)
