"""What a model declares, as Triton's ModelConfig."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.domain.model import BatchingPolicy, Fill, QueuePolicy, SharePolicy, WarmupInput, WarmupRun
from moorage.domain.tensor import Datatype, TensorSpec
from moorage.rpc.configuration import config_of
from moorage_protocol import inference as pb
from tests.unit.rpc.echo_backend import EchoBackend, echo_spec, served
from tests.unit.rpc.running import call, connected, on_loop

EMBEDDER = replace(
    echo_spec("embedder", TensorSpec("text", "BYTES", [1], optional=True), max_batch_size=32),
    outputs=(TensorSpec("embedding", "FP32", [384]),),
    parameters={"normalise": True},
    batching=BatchingPolicy(0.005, preferred_sizes=(4, 8)),
)
VARYING = echo_spec(
    "varying",
    TensorSpec("ragged", "FP32", [-1], ragged=True),
    TensorSpec("padded", "INT64", [-1], padding=0),
    TensorSpec("equal", "INT64", [-1]),
    max_batch_size=4,
)
PLAIN = replace(echo_spec("plain", TensorSpec("x", "BF16", [-1, 2])), runtime="torchscript")


@on_loop
async def test_configuration() -> None:
    async with connected(EchoBackend(served(EMBEDDER), served(PLAIN))) as channel:
        embedder = (await call(channel, "ModelConfig", pb.ModelConfigRequest(name="embedder"))).config
        plain = (await call(channel, "ModelConfig", pb.ModelConfigRequest(name="plain", version="1"))).config
    assert (embedder.name, embedder.platform, embedder.backend) == ("embedder", "python", "python")
    assert (embedder.max_batch_size, embedder.HasField("dynamic_batching")) == (32, True)
    assert list(embedder.dynamic_batching.preferred_batch_size) == [4, 8]
    assert embedder.dynamic_batching.max_queue_delay_microseconds == 5000
    assert (embedder.input[0].data_type, list(embedder.input[0].dims)) == (pb.TYPE_STRING, [1])
    assert (embedder.output[0].data_type, list(embedder.output[0].dims)) == (pb.TYPE_FP32, [384])
    assert embedder.input[0].optional
    assert embedder.parameters["normalise"].string_value == "True"
    assert [(group.kind, group.count) for group in embedder.instance_group] == [(pb.ModelInstanceGroup.KIND_CPU, 1)]
    assert not embedder.model_transaction_policy.decoupled
    assert (plain.platform, plain.backend) == ("pytorch_libtorch", "pytorch")
    assert (plain.max_batch_size, plain.HasField("dynamic_batching")) == (0, False)
    assert plain.input[0].data_type == pb.TYPE_BF16


def test_priorities_and_bounds_of_the_queue_are_told() -> None:
    spec = replace(EMBEDDER, queue=QueuePolicy(max_rows=100, default_timeout_s=2.5), share=SharePolicy(priority=2))
    batching = config_of(spec, "cpu").dynamic_batching
    assert (batching.priority_levels, batching.default_priority_level) == (5, 2)
    policy = batching.default_queue_policy
    assert (policy.max_queue_size, policy.default_timeout_microseconds) == (100, 2_500_000)
    assert policy.timeout_action == pb.ModelQueuePolicy.REJECT
    assert policy.allow_timeout_override


def test_warm_ups_are_told_as_they_stand_in_the_manifest() -> None:
    inputs = (
        WarmupInput("filled", Datatype.FP32, (3,), Fill.RANDOM),
        WarmupInput("zeros", Datatype.INT64, (2,)),
        WarmupInput("given", Datatype.BYTES, (1,), values=("a text",)),
    )
    spec = replace(EMBEDDER, warmup=(WarmupRun(), WarmupRun(rows=4, count=2, inputs=inputs)))
    first, second = config_of(spec, "cpu").model_warmup
    assert (first.name, first.batch_size, first.count, len(first.inputs)) == ("warmup 1", 1, 1, 0)
    assert (second.name, second.batch_size, second.count) == ("warmup 2", 4, 2)
    kinds = {name: told.WhichOneof("input_data_type") for name, told in second.inputs.items()}
    assert kinds == {"filled": "random_data", "zeros": "zero_data", "given": None}
    assert (second.inputs["given"].data_type, list(second.inputs["filled"].dims)) == (pb.TYPE_STRING, [3])


def test_as_many_instances_are_told_of_as_runs_may_be_under_way() -> None:
    (group,) = config_of(replace(EMBEDDER, instances=3), "cuda:1").instance_group
    assert (group.kind, group.count, list(group.gpus)) == (pb.ModelInstanceGroup.KIND_GPU, 3, [1])


def test_inputs_that_may_vary_are_said_to_be_ragged() -> None:
    assert [(tensor.name, tensor.allow_ragged_batch) for tensor in config_of(VARYING, "cpu").input] == [
        ("ragged", True),
        ("padded", True),
        ("equal", False),
    ]


@pytest.mark.parametrize(
    ("versions", "policy"),
    [
        ("latest", {"latest": {"num_versions": 1}}),
        ("all", {"all": {}}),
        ((1, 3), {"specific": {"versions": [1, 3]}}),
    ],
)
@on_loop
async def test_version_policy(versions: str | tuple[int, ...], policy: dict[str, Any]) -> None:
    async with connected(EchoBackend(served(replace(PLAIN, versions=versions)))) as channel:
        config = (await call(channel, "ModelConfig", pb.ModelConfigRequest(name="plain"))).config
    assert config.version_policy == pb.ModelVersionPolicy(**policy)
