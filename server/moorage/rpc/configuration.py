"""What a model declares, as Triton's ModelConfig and the protocol's metadata say it."""

from collections.abc import Iterable
from typing import NamedTuple

from moorage.domain.model import Fill, ModelSpec, WarmupInput, WarmupRun
from moorage.domain.tensor import TensorSpec
from moorage_protocol import inference as pb


class _Names(NamedTuple):
    platform: str
    backend: str


_RUNTIMES = {
    "python": _Names("python", "python"),
    "torchscript": _Names("pytorch_libtorch", "pytorch"),
    "torch_export": _Names("pytorch_export", "pytorch"),
    "onnx": _Names("onnxruntime_onnx", "onnxruntime"),
    "simulated": _Names("moorage_simulated", "moorage_simulated"),
}

_PRIORITY_LEVELS = 5
_FILLS = {Fill.ZEROS: "zero_data", Fill.RANDOM: "random_data"}


def _names(runtime: str) -> _Names:
    return _RUNTIMES.get(runtime) or _Names(runtime, runtime)


def metadata_of(spec: ModelSpec, versions: Iterable[int]) -> pb.ModelMetadataResponse:
    """Names, datatypes and shapes; here shapes include the batch axis."""
    return pb.ModelMetadataResponse(
        name=spec.name,
        versions=[str(version) for version in versions],
        platform=_names(spec.runtime).platform,
        inputs=[_tensor_metadata(tensor, spec.max_batch_size) for tensor in spec.inputs],
        outputs=[_tensor_metadata(tensor, spec.max_batch_size) for tensor in spec.outputs],
    )


def _tensor_metadata(tensor: TensorSpec, max_batch_size: int) -> pb.ModelMetadataResponse.TensorMetadata:
    shape = (-1, *tensor.shape) if max_batch_size else tensor.shape
    return pb.ModelMetadataResponse.TensorMetadata(name=tensor.name, datatype=tensor.datatype.value, shape=shape)


def config_of(spec: ModelSpec, device: str) -> pb.ModelConfig:
    """The model's configuration; here shapes leave out the batch axis."""
    names = _names(spec.runtime)
    config = pb.ModelConfig(
        name=spec.name,
        platform=names.platform,
        backend=names.backend,
        max_batch_size=spec.max_batch_size,
        input=[
            pb.ModelInput(
                name=t.name, data_type=_data_type(t), dims=t.shape, optional=t.optional, allow_ragged_batch=t.varies
            )
            for t in spec.inputs
        ],
        output=[pb.ModelOutput(name=t.name, data_type=_data_type(t), dims=t.shape) for t in spec.outputs],
        instance_group=[_instance_group(spec, device)],
        version_policy=_version_policy(spec.versions),
        model_warmup=[_warmup(number, run) for number, run in enumerate(spec.warmup, 1)],
    )
    config.model_transaction_policy.decoupled = spec.decoupled
    config.response_cache.enable = False
    if spec.max_batch_size:
        # Its presence is how tools learn that requests are batched.
        config.dynamic_batching.CopyFrom(_dynamic_batching(spec))
    for key, value in spec.parameters.items():
        config.parameters[key].string_value = str(value)
    return config


def _data_type(tensor: TensorSpec | WarmupInput) -> "pb.DataType.ValueType":
    name = "STRING" if tensor.datatype.value == "BYTES" else tensor.datatype.value
    return pb.DataType.Value(f"TYPE_{name}")


def _dynamic_batching(spec: ModelSpec) -> pb.ModelDynamicBatching:
    return pb.ModelDynamicBatching(
        preferred_batch_size=spec.batching.preferred_sizes,
        max_queue_delay_microseconds=_microseconds(spec.batching.max_queue_delay_s or 0.0),
        priority_levels=_PRIORITY_LEVELS,
        default_priority_level=spec.share.priority,
        default_queue_policy=pb.ModelQueuePolicy(
            timeout_action=pb.ModelQueuePolicy.REJECT,
            default_timeout_microseconds=_microseconds(spec.queue.default_timeout_s),
            allow_timeout_override=True,
            max_queue_size=spec.queue.max_rows,
        ),
    )


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _warmup(number: int, run: WarmupRun) -> pb.ModelWarmup:
    """What stands in model.toml; of inputs whose values stand there, none of the kinds of data applies."""
    warmup = pb.ModelWarmup(name=f"warmup {number}", batch_size=run.rows, count=run.count)
    for given in run.inputs:
        told = warmup.inputs[given.name]
        told.data_type = _data_type(given)
        told.dims.extend(given.shape)
        if not given.values:
            setattr(told, _FILLS[given.fill], True)
    return warmup


def _version_policy(versions: str | tuple[int, ...]) -> pb.ModelVersionPolicy:
    if isinstance(versions, tuple):
        return pb.ModelVersionPolicy(specific=pb.ModelVersionPolicy.Specific(versions=versions))
    if versions == "all":
        return pb.ModelVersionPolicy(all=pb.ModelVersionPolicy.All())
    return pb.ModelVersionPolicy(latest=pb.ModelVersionPolicy.Latest(num_versions=1))


def _instance_group(spec: ModelSpec, device: str) -> pb.ModelInstanceGroup:
    kind, _, index = device.partition(":")
    group = pb.ModelInstanceGroup(name=spec.name, kind=pb.ModelInstanceGroup.KIND_CPU, count=spec.instances)
    if kind != "cpu":
        group.kind = pb.ModelInstanceGroup.KIND_GPU
        group.gpus.append(int(index or 0))
    return group
