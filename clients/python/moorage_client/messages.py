"""The protocol's messages, built from and turned into what callers of the clients see."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moorage_client.errors import InvalidRequest, InvalidResponse
from moorage_client.tensors import Array, Tensor, decode, encode
from moorage_protocol import inference as pb

ParameterValue = bool | int | float | str

MAX_UINT32 = 2**32 - 1
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One version of one model in the server's repository.

    state: READY, LOADING, UNLOADING or UNAVAILABLE; reason says more where there is more to say.
    device: where it holds memory, such as "cpu" or "cuda:0"; empty where it holds none.
    """

    name: str
    version: str
    state: str
    ready: bool
    reason: str
    device: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """Who answers, and which extensions of the protocol it has."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """One input or output of a model. shape has the batch axis; -1 stands for any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model takes and gives."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, slots=True)
class InferenceOptions:
    """Everything of an inference request but the model and its inputs."""

    outputs: Sequence[str] = ()
    version: str = ""
    parameters: Mapping[str, ParameterValue] | None = None
    priority: int = 0
    request_id: str = ""


def infer_request(model: str, inputs: Mapping[str, Tensor], options: InferenceOptions) -> pb.ModelInferRequest:
    """The request, all tensors raw. Raises InvalidRequest, naming the input or parameter that can't be sent."""
    request = pb.ModelInferRequest(model_name=model, model_version=options.version, id=options.request_id)
    for name, value in inputs.items():
        tensor = encode(name, value)
        request.inputs.add(name=name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(tensor.data)
    for output in options.outputs:
        request.outputs.add(name=output)
    for key, parameter in (options.parameters or {}).items():
        _set_parameter(request.parameters[key], key, parameter)
    if options.priority:
        request.parameters["priority"].uint64_param = whole("priority", options.priority, MAX_UINT32)
    return request


def whole(field: str, number: int, most: int) -> int:
    """A number that a message can carry. Raises InvalidRequest, naming the field."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
        raise InvalidRequest(f"{field}: expected a whole number from 0 to {most}, got {number!r}")
    return number


def infer_outputs(response: pb.ModelInferResponse, wanted: Sequence[str]) -> dict[str, Array]:
    """The outputs by name, in the server's order. Raises InvalidResponse where the answer contradicts itself."""
    if len(response.outputs) != len(response.raw_output_contents):
        raise InvalidResponse(
            f"{len(response.outputs)} outputs are described, data came for {len(response.raw_output_contents)}"
        )
    outputs = {
        output.name: decode(output.name, output.datatype, output.shape, data)
        for output, data in zip(response.outputs, response.raw_output_contents, strict=True)
    }
    missing = [name for name in wanted if name not in outputs]
    if missing:
        raise InvalidResponse(f"outputs asked for but not in the answer: {', '.join(missing)}")
    return outputs


def server_metadata(response: pb.ServerMetadataResponse) -> ServerMetadata:
    """Of ServerMetadata's answer."""
    return ServerMetadata(response.name, response.version, tuple(response.extensions))


def model_metadata(response: pb.ModelMetadataResponse) -> ModelMetadata:
    """Of ModelMetadata's answer."""
    return ModelMetadata(
        name=response.name,
        versions=tuple(response.versions),
        platform=response.platform,
        inputs=_tensors(response.inputs),
        outputs=_tensors(response.outputs),
    )


def model_infos(index: pb.RepositoryIndexResponse, statistics: Iterable[pb.ModelStatistics]) -> tuple[ModelInfo, ...]:
    """The repository's index, joined with what each model holds of which device's memory."""
    usages = {(entry.name, entry.version): tuple(entry.memory_usage) for entry in statistics}
    return tuple(
        ModelInfo(
            name=entry.name,
            version=entry.version,
            state=entry.state,
            ready=entry.state == "READY",
            reason=entry.reason,
            device=",".join(dict.fromkeys(_device(usage) for usage in usages.get((entry.name, entry.version), ()))),
            memory_bytes=sum(usage.byte_size for usage in usages.get((entry.name, entry.version), ())),
        )
        for entry in index.models
    )


def _tensors(tensors: Iterable[pb.ModelMetadataResponse.TensorMetadata]) -> tuple[TensorMetadata, ...]:
    return tuple(TensorMetadata(tensor.name, tensor.datatype, tuple(tensor.shape)) for tensor in tensors)


def _device(usage: pb.MemoryUsage) -> str:
    return f"cuda:{usage.id}" if usage.type == "GPU" else "cpu"


def _set_parameter(field: pb.InferParameter, key: str, value: ParameterValue) -> None:
    match value:
        case bool():  # before int, which a bool is too
            field.bool_param = value
        case int() if -_INT64_MAX - 1 <= value <= _INT64_MAX:
            field.int64_param = value
        case int() if 0 <= value <= 2 * _INT64_MAX + 1:
            field.uint64_param = value
        case float():
            field.double_param = value
        case str():
            field.string_param = value
        case _:
            raise InvalidRequest(f"parameter '{key}': expected a bool, int, float or str, got {value!r}")
