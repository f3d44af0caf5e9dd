"""Both clients against a real server."""

import threading
from collections.abc import Callable

import grpc
import numpy as np
import pytest

from moorage_client import (
    Client,
    DeadlineExceeded,
    InvalidRequest,
    InvalidResponse,
    ModelInfo,
    ModelNotFound,
    Overloaded,
    SyncClient,
)
from moorage_protocol import inference as pb
from tests.support.in_a_loop import with_client
from tests.support.protocol_server import Behaviour, Failure

PUSHBACK = (("grpc-retry-pushback-ms", "20"),)


def test_every_operation_of_the_aio_client(server: Behaviour) -> None:
    server.metadata = described()

    async def use(client: Client) -> None:
        assert await client.is_live()
        assert await client.is_ready()
        assert await client.is_model_ready("identity")
        assert not await client.is_model_ready("missing")
        assert (await client.server_metadata()).extensions == ("statistics",)
        metadata = await client.metadata("identity")
        assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in metadata.inputs] == [("x", "FP32", (-1, 2))]
        assert (await client.config("identity")).name == "identity"
        assert await client.statistics() == ()
        await client.load("identity")
        await client.unload("identity")
        await client.wait_until_ready(5.0, ["identity"])

    with_client(server, use)


def test_every_operation_of_the_sync_client(server: Behaviour) -> None:
    server.metadata = described()
    with SyncClient(server.target) as client:
        assert client.is_live()
        assert client.is_ready()
        assert client.is_model_ready("identity", "1")
        assert client.server_metadata().name == "echo"
        assert client.metadata("identity").outputs == ()
        assert client.config("identity").name == "identity"
        assert client.statistics("identity") == ()
        client.load("identity")
        client.unload("identity", timeout_s=5.0)
        client.wait_until_ready(5.0, ["identity"])


def described() -> pb.ModelMetadataResponse:
    metadata = pb.ModelMetadataResponse(name="identity", versions=["1"], platform="python")
    metadata.inputs.add(name="x", datatype="FP32", shape=[-1, 2])
    return metadata


def test_tensors_of_several_datatypes_in_one_request(server: Behaviour) -> None:
    inputs = {
        "floats": np.ones((2, 3), np.float32),
        "texts": np.array([["a"], ["ü"]], dtype=object),
        "none": np.zeros((0, 3), np.int64),
    }
    outputs = with_client(server, lambda client: client.infer("identity", inputs))
    assert list(outputs) == list(inputs)
    assert np.array_equal(outputs["floats"], inputs["floats"])
    assert outputs["texts"].tolist() == [[b"a"], ["ü".encode()]]
    assert outputs["none"].shape == (0, 3)


def test_options_are_sent_where_the_protocol_has_them(server: Behaviour) -> None:
    with SyncClient(server.target) as client:
        client.infer(
            "identity",
            {"x": [1]},
            outputs=["x"],
            version="7",
            parameters={"flag": True, "count": -3, "large": 2**63, "ratio": 0.5, "name": "n"},
            priority=2,
            request_id="mine",
        )
    (request,) = server.requests
    assert (request.model_name, request.model_version, request.id) == ("identity", "7", "mine")
    assert [output.name for output in request.outputs] == ["x"]
    assert {key: value.WhichOneof("parameter_choice") for key, value in request.parameters.items()} == {
        "flag": "bool_param",
        "count": "int64_param",
        "large": "uint64_param",
        "ratio": "double_param",
        "name": "string_param",
        "priority": "uint64_param",
    }


@pytest.mark.parametrize("options", [{"priority": -1}, {"parameters": {"huge": 2**64}}])
def test_what_cannot_be_sent_is_refused_here(server: Behaviour, options: dict[str, int]) -> None:
    with SyncClient(server.target) as client, pytest.raises(InvalidRequest):
        client.infer("identity", {"x": [1]}, **options)  # type: ignore[arg-type]
    assert server.requests == []


def test_the_repository_with_the_memory_of_each_model(server: Behaviour) -> None:
    server.index.models.add(name="mlp", version="1", state="READY")
    server.index.models.add(name="vad", version="2", state="UNAVAILABLE", reason="unloaded")
    statistics = server.statistics.model_stats.add(name="mlp", version="1")
    statistics.memory_usage.add(type="GPU", id=1, byte_size=1000)
    statistics.memory_usage.add(type="GPU", id=1, byte_size=24)
    with SyncClient(server.target) as client:
        models = client.models()
    assert models == (
        ModelInfo("mlp", "1", "READY", True, "", "cuda:1", 1024),
        ModelInfo("vad", "2", "UNAVAILABLE", False, "unloaded", "", 0),
    )


def test_it_tries_again_when_told_to_come_back(server: Behaviour) -> None:
    full = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, metadata=PUSHBACK)
    server.failures = [full, Failure(grpc.StatusCode.UNAVAILABLE)]
    outputs = with_client(server, lambda client: client.infer("identity", {"x": [1]}))
    assert outputs["x"].tolist() == [1]
    assert len(server.requests) == 3


def test_the_pushback_reaches_the_caller(server: Behaviour) -> None:
    server.failures = [Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", PUSHBACK)] * 3
    with SyncClient(server.target) as client, pytest.raises(Overloaded, match="full") as caught:
        client.infer("identity", {"x": [1]})
    assert caught.value.retry_after_s == 0.02
    assert len(server.requests) == 3


def test_what_is_final_is_not_tried_again(server: Behaviour) -> None:
    server.failures = [Failure(grpc.StatusCode.NOT_FOUND, "Request for unknown model")]
    with SyncClient(server.target) as client, pytest.raises(ModelNotFound, match="unknown model"):
        client.infer("other", {"x": [1]})
    assert len(server.requests) == 1


def cut_data(response: pb.ModelInferResponse) -> None:
    response.raw_output_contents[0] = b"\0"


def drop_data(response: pb.ModelInferResponse) -> None:
    del response.raw_output_contents[:]


def rename_output(response: pb.ModelInferResponse) -> None:
    response.outputs[0].name = "other"


def change_id(response: pb.ModelInferResponse) -> None:
    response.id = "other"


@pytest.mark.parametrize("corrupt", [cut_data, drop_data, rename_output, change_id])
def test_a_wrong_answer_is_an_error(server: Behaviour, corrupt: Callable[[pb.ModelInferResponse], object]) -> None:
    server.corrupt = corrupt
    with SyncClient(server.target) as client, pytest.raises(InvalidResponse):
        client.infer("identity", {"x": [1]}, outputs=["x"], request_id="mine")


def test_the_timeout_ends_a_call(server: Behaviour) -> None:
    release = threading.Event()
    server.hold = release.wait
    try:
        with pytest.raises(DeadlineExceeded):
            with_client(server, lambda client: client.infer("identity", {"x": [1]}, timeout_s=0.1))
    finally:
        release.set()
