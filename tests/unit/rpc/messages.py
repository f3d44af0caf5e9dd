"""Short ways to write requests and to decode them without a server."""

from collections.abc import Sequence
from typing import Any

import pytest

from moorage.domain.errors import InvalidRequest
from moorage.domain.model import ModelSpec
from moorage.domain.request import InferenceRequest
from moorage.rpc.codec import Call, Decoder
from moorage.rpc.render import Renderer
from moorage_protocol import inference as pb
from tests.unit.rpc.echo_backend import EchoBackend, served

CALL = Call(arrived_s=100.0, remaining_s=None, metadata=())


def raw_request(model: str, *tensors: tuple[str, str, Sequence[int], bytes], **fields: Any) -> pb.ModelInferRequest:
    """A request with raw contents: (name, datatype, shape, bytes) of each input."""
    request = pb.ModelInferRequest(model_name=model, **fields)
    for name, datatype, shape, data in tensors:
        request.inputs.add(name=name, datatype=datatype, shape=shape)
        request.raw_input_contents.append(data)
    return request


def typed_request(
    model: str, *tensors: tuple[str, str, Sequence[int], dict[str, Any] | None], **fields: Any
) -> pb.ModelInferRequest:
    """A request with typed contents: (name, datatype, shape, fields of the contents or None) of each input."""
    request = pb.ModelInferRequest(model_name=model, **fields)
    for name, datatype, shape, contents in tensors:
        tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
        if contents is not None:
            tensor.contents.CopyFrom(pb.InferTensorContents(**contents))
    return request


async def decode_async(
    spec: ModelSpec, request: pb.ModelInferRequest | bytes, call: Call = CALL
) -> tuple[InferenceRequest, Renderer]:
    """What the decoder makes of a request to this model."""
    body = request if isinstance(request, bytes) else request.SerializeToString()
    return await Decoder(EchoBackend(served(spec))).decode(body, call)


def decode(
    spec: ModelSpec, request: pb.ModelInferRequest | bytes, call: Call = CALL
) -> tuple[InferenceRequest, Renderer]:
    """The same, for requests that are small enough to be decoded without giving way to the event loop."""
    try:
        decode_async(spec, request, call).send(None)
    except StopIteration as done:
        decoded: tuple[InferenceRequest, Renderer] = done.value
        return decoded
    raise AssertionError("decoding a small request gave way")


def refusal(spec: ModelSpec, request: pb.ModelInferRequest | bytes) -> str:
    """Why the request is refused, in the words that the client gets."""
    with pytest.raises(InvalidRequest) as caught:
        decode(spec, request)
    return str(caught.value)
