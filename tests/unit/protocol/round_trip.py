"""Messages to bytes and back, through every kind of field. Also a script: `round_trip.py VERSION_PREFIX`."""

import sys

import google.protobuf

from moorage_protocol import inference as pb
from moorage_protocol import moorage_v1
from moorage_protocol.services import ADMIN_METHODS, INFERENCE_METHODS


def example_request() -> pb.ModelInferRequest:
    """Strings, maps, oneofs, nested and repeated messages, packed integers and bytes that are not text."""
    request = pb.ModelInferRequest(model_name="identity", id="17", raw_input_contents=[b"\x00\xff\x80", b""])
    request.parameters["priority"].uint64_param = 2**64 - 1
    request.parameters["temperature"].double_param = 0.5
    request.inputs.add(name="IN", datatype="BYTES", shape=[1, -1]).contents.bytes_contents.append(b"\xfe")
    request.outputs.add(name="OUT").parameters["classification"].int64_param = -3
    return request


def example_config() -> pb.ModelConfig:
    """Enums at the top and nested, and a oneof whose member is present though empty."""
    config = pb.ModelConfig(name="identity", dynamic_batching=pb.ModelDynamicBatching())
    config.input.add(name="IN", data_type=pb.TYPE_BF16, dims=[-1])
    config.instance_group.add(kind=pb.ModelInstanceGroup.KIND_GPU, gpus=[0])
    config.optimization.cuda.graph_spec.add().graph_lower_bound.input["IN"].dim.append(4)
    return config


def example_snapshot() -> moorage_v1.WatchSnapshotResponse:
    """Maps of integers, enums, and a field that is there though it is zero."""
    response = moorage_v1.WatchSnapshotResponse()
    model = response.snapshot.models.add(name="identity", state=moorage_v1.MODEL_STATE_RESIDENT)
    model.leased_bytes["weights"] = 2**63
    model.policy.limit_bytes = 0
    return response


def round_trip() -> None:
    """AssertionError: something did not survive."""
    request = example_request()
    assert pb.ModelInferRequest.FromString(request.SerializeToString()) == request
    config = pb.ModelConfig.FromString(example_config().SerializeToString())
    assert config == example_config()
    assert config.WhichOneof("scheduling_choice") == "dynamic_batching"
    assert INFERENCE_METHODS["ModelInfer"].request is pb.ModelInferRequest
    watched = moorage_v1.WatchSnapshotResponse.FromString(example_snapshot().SerializeToString(deterministic=True))
    assert watched == example_snapshot()
    assert watched.snapshot.models[0].policy.HasField("limit_bytes")
    assert ADMIN_METHODS["WatchSnapshot"].response is moorage_v1.WatchSnapshotResponse


if __name__ == "__main__":
    assert google.protobuf.__version__.startswith(sys.argv[1]), google.protobuf.__version__
    round_trip()
