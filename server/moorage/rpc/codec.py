"""From a ModelInferRequest to the InferenceRequest that the engine queues."""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from moorage.domain.errors import InvalidRequest, NotSupported
from moorage.domain.request import InferenceRequest, ParameterValue
from moorage.domain.tensor import InputTensor
from moorage.repository.names import check_model_name, parse_version
from moorage.rpc.inputs import read_inputs
from moorage.rpc.parameters import Metadata, read_options, refuse_tensor_parameters
from moorage.rpc.ports import Backend
from moorage.rpc.render import Renderer
from moorage.rpc.signature import Signature, Signatures
from moorage.rpc.wire import parse_inference
from moorage.rpc.wording import quote, quote_all
from moorage_protocol import inference as pb

MAX_ID_CHARACTERS = 64 * 1024
_REQUEST_BYTES = 512
"""Counted for a request besides its tensors, so that empty ones can't fill a queue for nothing."""

# As Triton says it.
_NOT_DECOUPLED = "ModelInfer RPC doesn't support models with decoupled transaction policy; use ModelStreamInfer"


class Call(NamedTuple):
    """What the transport knows of a call. remaining_s: to the client's deadline, None where it set none."""

    arrived_s: float
    remaining_s: float | None
    metadata: Metadata


class Decoder:
    """Turns requests into what the engine takes, with tables for the models that were asked for."""

    def __init__(self, backend: Backend, *, decoupled: bool = False) -> None:
        """decoupled: whether one call may have any number of answers."""
        self._backend = backend
        self._decoupled = decoupled
        self._signatures = Signatures()

    async def decode(
        self, body: bytes, call: Call, *, target: tuple[str, str] | None = None, client_id: str | None = None
    ) -> tuple[InferenceRequest, Renderer]:
        """The request of one ModelInfer call, and what renders its answer.

        target: name and version of the model for which it has to be, where it names one, and is, where not. client_id:
        instead of its own id.

        Raises InvalidRequest, NotSupported, ModelNotFound and ModelNotReady. A small request is decoded without
        giving way; a large one gives way to other work now and then. Cancellation: nothing is left behind.
        """
        message, raw = parse_inference(body)
        name, version = _wanted_model(message) if target is None else _model_of(message, *target)
        key, spec = self._backend.resolve(name, version)
        if spec.decoupled and not self._decoupled:
            raise NotSupported(_NOT_DECOUPLED)
        signature = self._signatures.of(key, spec)
        options = read_options(message.parameters, call.metadata)
        outputs = _requested(signature, message.outputs)
        inputs = await read_inputs(signature, message.inputs, raw)
        client_id = message.id if client_id is None else client_id
        if len(client_id) > MAX_ID_CHARACTERS:
            raise InvalidRequest("id", expected=f"at most {MAX_ID_CHARACTERS} characters", got=str(len(client_id)))
        request = InferenceRequest(
            request_id=self._backend.next_request_id(),
            client_id=client_id,
            model=key,
            inputs=inputs.tensors,
            rows=inputs.rows,
            size_bytes=inputs.size_bytes + _REQUEST_BYTES,
            arrived_s=call.arrived_s,
            deadline_s=call.arrived_s + _patience_s(options.timeout_s, call.remaining_s, spec.queue.default_timeout_s),
            batch_key=_batch_key(signature, inputs.tensors, options.custom) if spec.max_batch_size else None,
            outputs=outputs,
            parameters=options.custom,
            priority=options.priority,
            padded=_padded(signature, inputs.tensors) if signature.padded else (),
        )
        render = Renderer(signature, client_id, outputs, typed=inputs.typed, empty_final=options.empty_final)
        return request, render


def _wanted_model(message: pb.ModelInferRequest) -> tuple[str, str]:
    """Name and version, as they may be."""
    parse_version(message.model_version)
    return check_model_name(message.model_name), message.model_version


def _model_of(message: pb.ModelInferRequest, name: str, version: str) -> tuple[str, str]:
    """Name and version that were named before. Raises InvalidRequest where the message names others."""
    if message.model_name and message.model_name != name:
        expected = f"none, or the batch's {quote(name)}"
        raise InvalidRequest("model_name", expected=expected, got=quote(message.model_name))
    if message.model_version and message.model_version != version:
        expected = f"none, or the batch's {quote(version)}"
        raise InvalidRequest("model_version", expected=expected, got=quote(message.model_version))
    return name, version


def _requested(
    signature: Signature, outputs: Sequence[pb.ModelInferRequest.InferRequestedOutputTensor]
) -> tuple[str, ...]:
    """Names of the outputs asked for, in that order; none where all are wanted."""
    names: dict[str, None] = {}
    for output in outputs:
        name = output.name
        if name not in signature.outputs:
            expected = f"one of the model's outputs: {quote_all(sorted(signature.outputs))}"
            raise InvalidRequest(f"output {quote(name)}", expected=expected, got="an unknown name")
        if name in names:
            raise InvalidRequest(f"output {quote(name)}", expected="each output once", got="it twice")
        if output.parameters:
            refuse_tensor_parameters(output.parameters, f"output {quote(name)}")
        names[name] = None
    return tuple(names)


def _patience_s(timeout_s: float | None, remaining_s: float | None, default_s: float) -> float:
    """Seconds that the request may take: the least of what the client said, else the model's default."""
    if timeout_s is None:
        return default_s if remaining_s is None else remaining_s
    return timeout_s if remaining_s is None else min(timeout_s, remaining_s)


def _padded(signature: Signature, tensors: tuple[InputTensor, ...]) -> tuple[tuple[int, ...], ...]:
    """InferenceRequest.padded."""
    return tuple(
        [(tensor.datatype.item_bytes, *tensor.shape[1:]) for tensor in tensors if tensor.name in signature.padded]
    )


def _batch_key(
    signature: Signature, tensors: tuple[InputTensor, ...], custom: Mapping[str, ParameterValue]
) -> Hashable:
    """Equal for requests that one run can take together: the same inputs, alike but for their rows, and parameters.

    Of inputs that may vary only the declared shape counts, and no parameter that may differ within a run.
    """
    declared = signature.varying
    shapes = tuple(
        [(tensor.name, tensor.datatype.value, declared.get(tensor.name, tensor.shape[1:])) for tensor in tensors]
    )
    ignored = signature.spec.batching.per_request_parameters
    if not custom or "*" in ignored:
        return shapes, ()
    # With its type, since True, 1 and 1.0 are equal to Python but not to a model.
    return shapes, tuple(
        sorted((key, type(value).__name__, value) for key, value in custom.items() if key not in ignored)
    )
