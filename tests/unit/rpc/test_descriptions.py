"""What the server says of itself and of its models: metadata, statistics, index."""

from dataclasses import replace
from typing import Any

import grpc
import pytest
import tritonclient.grpc.aio as triton

from moorage.domain.model import BatchingPolicy, ModelKey, ModelState
from moorage.domain.tensor import TensorSpec
from moorage.engine.snapshot import BatchSizeStatistics, BrokenModel, Duration, ModelStatistics
from moorage_protocol import inference as pb
from tests.unit.rpc.echo_backend import EchoBackend, echo_spec, served
from tests.unit.rpc.running import call, connected, listening, on_loop

Code = grpc.StatusCode

EMBEDDER = replace(
    echo_spec("embedder", TensorSpec("text", "BYTES", [1], optional=True), max_batch_size=32),
    outputs=(TensorSpec("embedding", "FP32", [384]),),
    parameters={"normalise": True},
    batching=BatchingPolicy(0.005, preferred_sizes=(4, 8)),
)
PLAIN = replace(echo_spec("plain", TensorSpec("x", "BF16", [-1, 2])), runtime="torchscript")
COUNTED = ModelStatistics(
    last_inference_ms=1_700_000_000_000,
    inference_count=12,
    execution_count=4,
    success=Duration(5, 500),
    fail=Duration(1, 10),
    queue=Duration(5, 50),
    compute_input=Duration(5, 1),
    compute_infer=Duration(5, 2),
    compute_output=Duration(5, 3),
    batches={3: BatchSizeStatistics(Duration(4, 1), Duration(4, 2), Duration(4, 3))},
)


def backend() -> EchoBackend:
    cold = replace(served(PLAIN, ModelState.UNLOADED), reason="loads on the first request")
    embedder = replace(served(EMBEDDER), statistics=COUNTED)
    return EchoBackend(embedder, cold, broken=(BrokenModel("broken", "model.toml: no inputs"),))


async def failed(channel: "grpc.aio.Channel", method: str, request: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, method, request)
    return caught.value.code()


@on_loop
async def test_liveness_and_readiness() -> None:
    engine = backend()
    async with listening(engine) as address, triton.InferenceServerClient(address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("embedder")
        assert await client.is_model_ready("embedder", "1")
        assert await client.is_model_ready("plain")  # cold, but it would be loaded for a request
        assert not await client.is_model_ready("embedder", "2")
        assert not await client.is_model_ready("broken")
        assert not await client.is_model_ready("unheard-of")
        with pytest.raises(triton.InferenceServerException, match="INVALID_ARGUMENT"):
            await client.is_model_ready("../embedder")
        engine.draining = True
        assert await client.is_server_live()
        assert not await client.is_server_ready()
        assert not await client.is_model_ready("embedder")


@on_loop
async def test_metadata() -> None:
    async with listening(backend()) as address, triton.InferenceServerClient(address) as client:
        server = await client.get_server_metadata()
        assert (server.name, server.version) == ("moorage", "0.0.0")
        assert "statistics" in server.extensions
        model = await client.get_model_metadata("embedder")
        assert (model.name, list(model.versions), model.platform) == ("embedder", ["1"], "python")
        assert [(t.name, t.datatype, list(t.shape)) for t in model.inputs] == [("text", "BYTES", [-1, 1])]
        assert [(t.name, t.datatype, list(t.shape)) for t in model.outputs] == [("embedding", "FP32", [-1, 384])]
        plain = await client.get_model_metadata("plain")
        assert [list(t.shape) for t in plain.inputs] == [[-1, 2]]


@on_loop
async def test_the_latest_version_that_serves_is_described() -> None:
    newer = replace(served(replace(EMBEDDER, version=2), ready=False), key=ModelKey("embedder", 2))
    engine = backend()
    engine.models["embedder/2"] = newer
    async with connected(engine) as channel:
        metadata = await call(channel, "ModelMetadata", pb.ModelMetadataRequest(name="embedder"))
        assert list(metadata.versions) == ["1", "2"]
        ready = await call(channel, "ModelReady", pb.ModelReadyRequest(name="embedder"))
        assert ready.ready
        statistics = await call(channel, "ModelStatistics", pb.ModelStatisticsRequest(name="embedder"))
        assert [entry.version for entry in statistics.model_stats] == ["1", "2"]


@on_loop
async def test_statistics() -> None:
    async with listening(backend()) as address, triton.InferenceServerClient(address) as client:
        everything = await client.get_inference_statistics()
        assert [entry.name for entry in everything.model_stats] == ["embedder", "plain"]
        (entry,) = (await client.get_inference_statistics("embedder", "1")).model_stats
    assert (entry.last_inference, entry.inference_count, entry.execution_count) == (1_700_000_000_000, 12, 4)
    told = entry.inference_stats
    assert (told.success.count, told.success.ns, told.fail.count, told.queue.ns) == (5, 500, 1, 50)
    assert told.compute_input.count == told.compute_infer.count == told.compute_output.count == 5
    (batch,) = entry.batch_stats
    assert (batch.batch_size, batch.compute_infer.count, batch.compute_infer.ns) == (3, 4, 2)
    (memory,) = entry.memory_usage
    assert (memory.type, memory.id, memory.byte_size) == ("CPU", 0, 90 * 1024 * 1024)


@on_loop
async def test_memory_on_a_card() -> None:
    on_card = replace(served(PLAIN), device="cuda:1", leased_bytes={"weights": 5, "workspace": 6})
    async with connected(EchoBackend(on_card)) as channel:
        statistics = await call(channel, "ModelStatistics", pb.ModelStatisticsRequest())
        config = (await call(channel, "ModelConfig", pb.ModelConfigRequest(name="plain"))).config
    (memory,) = statistics.model_stats[0].memory_usage
    assert (memory.type, memory.id, memory.byte_size) == ("GPU", 1, 11)
    assert (config.instance_group[0].kind, list(config.instance_group[0].gpus)) == (pb.ModelInstanceGroup.KIND_GPU, [1])


@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig", "ModelStatistics"])
@on_loop
async def test_models_that_are_not_there(method: str) -> None:
    request = getattr(pb, f"{method}Request")
    async with connected(backend()) as channel:
        assert await failed(channel, method, request(name="unheard-of")) is Code.NOT_FOUND
        assert await failed(channel, method, request(name="embedder", version="9")) is Code.NOT_FOUND
        assert await failed(channel, method, request(name="a/../../etc")) is Code.INVALID_ARGUMENT
        assert await failed(channel, method, request(name="embedder", version="../1")) is Code.INVALID_ARGUMENT
        assert await failed(channel, method, request(name="broken")) is Code.UNAVAILABLE


@on_loop
async def test_index() -> None:
    async with connected(backend()) as channel:
        entries = (await call(channel, "RepositoryIndex", pb.RepositoryIndexRequest())).models
        ready = (await call(channel, "RepositoryIndex", pb.RepositoryIndexRequest(ready=True))).models
        elsewhere = await failed(channel, "RepositoryIndex", pb.RepositoryIndexRequest(repository_name="other"))
    assert [(entry.name, entry.version, entry.state, entry.reason) for entry in entries] == [
        ("broken", "", "UNAVAILABLE", "model.toml: no inputs"),
        ("embedder", "1", "READY", "resident on cpu, 90 MiB weights"),
        ("plain", "1", "READY", "unloaded; loads on the first request"),
    ]
    assert [entry.name for entry in ready] == ["embedder", "plain"]
    assert elsewhere is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (ModelState.LOADING, "LOADING"),
        (ModelState.UNLOADING, "UNLOADING"),
        (ModelState.UNLOADED, "UNAVAILABLE"),
        (ModelState.FAILED, "UNAVAILABLE"),
    ],
)
@on_loop
async def test_states_of_models_that_do_not_serve(state: ModelState, text: str) -> None:
    async with connected(EchoBackend(served(PLAIN, state, ready=False))) as channel:
        (entry,) = (await call(channel, "RepositoryIndex", pb.RepositoryIndexRequest())).models
    assert entry.state == text


REASONS: list[tuple[ModelState, str, str | None, dict[str, int], str]] = [
    (ModelState.RESIDENT, "", "cpu", {"weights": 40}, "resident on cpu, 40 B weights"),
    (
        ModelState.RESIDENT,
        "",
        "cpu",
        {"weights": 1536, "workspace": 2**30},
        "resident on cpu, 1 GiB workspace, 1.5 KiB weights",
    ),
    (ModelState.RESIDENT, "", "cpu", {"weights": 2**20 - 1}, "resident on cpu, 1.0 MiB weights"),
    (ModelState.RESIDENT, "", "cpu", {"weights": 300 * 2**30 + 1}, "resident on cpu, 300 GiB weights"),
    (ModelState.FAILED, "failed to load model 'plain': no file", None, {}, "failed to load model 'plain': no file"),
    (ModelState.FAILED, "needs 7 bytes", None, {}, "failed; needs 7 bytes"),
    (ModelState.UNLOADED, "", None, {}, "unloaded"),
    (ModelState.UNLOADED, "unloaded", None, {}, "unloaded"),
    (ModelState.LOADING, "loading", "cpu", {"weights": 2**20}, "loading on cpu, 1 MiB weights"),
    (ModelState.LOADING, "waiting to load", "cpu", {}, "loading on cpu; waiting to load"),
]


@pytest.mark.parametrize(("state", "reason", "device", "leased", "text"), REASONS)
@on_loop
async def test_reasons_are_readable(
    state: ModelState, reason: str, device: str | None, leased: dict[str, int], text: str
) -> None:
    model = replace(served(PLAIN, state), reason=reason, device=device, leased_bytes=leased)
    async with connected(EchoBackend(model)) as channel:
        (entry,) = (await call(channel, "RepositoryIndex", pb.RepositoryIndexRequest())).models
    assert entry.reason == text


@on_loop
async def test_load_and_unload() -> None:
    engine = backend()
    async with listening(engine) as address, triton.InferenceServerClient(address) as client:
        await client.unload_model("embedder", unload_dependents=True)
        assert not await client.is_model_ready("embedder")
        await client.load_model("embedder")
        assert await client.is_model_ready("embedder")
        with pytest.raises(triton.InferenceServerException, match="NOT_FOUND"):
            await client.load_model("unheard-of")
        with pytest.raises(triton.InferenceServerException, match="FAILED_PRECONDITION"):
            await client.load_model("broken")
        for name in ("../embedder", "", "/etc/passwd", "x" * 300):
            with pytest.raises(triton.InferenceServerException, match="INVALID_ARGUMENT"):
                await client.load_model(name)
        with pytest.raises(triton.InferenceServerException, match=r"INVALID_ARGUMENT.*'config'"):
            await client.load_model("embedder", config="{}")
        with pytest.raises(triton.InferenceServerException, match="INVALID_ARGUMENT"):
            await client.load_model("embedder", config="{}", files={"file:1/model.py": b"import os"})


@on_loop
async def test_kserve_names_the_model_in_the_first_field() -> None:
    async with connected(backend()) as channel:
        request = pb.RepositoryModelUnloadRequest(repository_name="embedder")
        unloaded = await call(channel, "RepositoryModelUnload", request)
        loaded = await call(channel, "RepositoryModelLoad", pb.RepositoryModelLoadRequest(repository_name="embedder"))
        both = pb.RepositoryModelLoadRequest(repository_name="other", model_name="embedder")
        assert await failed(channel, "RepositoryModelLoad", both) is Code.UNIMPLEMENTED
    assert (unloaded.model_name, unloaded.isUnloaded) == ("embedder", True)
    assert (loaded.model_name, loaded.isLoaded) == ("embedder", True)
