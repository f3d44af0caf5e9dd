"""Messages of a stream: ModelStreamInferResponse."""

import contextlib

from moorage.domain.errors import MoorageError
from moorage.domain.tensor import OutputTensor
from moorage.rpc.render import Renderer
from moorage.rpc.status import outcome_of
from moorage.rpc.wire import parse_inference, varint
from moorage_protocol import inference as pb

_RESPONSE_TAG = bytes((2 << 3 | 2,))
_UNKNOWN_ID = "<id_unknown>"  # as Triton says it


def _flag(*, is_final: bool) -> bytes:
    answer = pb.ModelInferResponse()
    answer.parameters["triton_final_response"].bool_param = is_final
    return answer.SerializeToString()


_FLAGS = {is_final: _flag(is_final=is_final) for is_final in (False, True)}


def answer_of(render: Renderer, outputs: tuple[OutputTensor, ...], *, is_final: bool) -> bytes:
    """An answer to a request, serialized. Without outputs it says that there are no more."""
    parts = [*render.parts(outputs), _FLAGS[is_final]]
    return b"".join((_RESPONSE_TAG, varint(sum(map(len, parts))), *parts))


def failure_of(body: bytes, error: MoorageError) -> bytes:
    """The answer to a request that failed. Python's tritonclient keeps of it the text alone."""
    outcome = outcome_of(error)
    answer = pb.ModelStreamInferResponse()
    with contextlib.suppress(MoorageError):
        message, _ = parse_inference(body)
        answer.infer_response.id = message.id
        answer.infer_response.model_name = message.model_name
        answer.infer_response.model_version = message.model_version
    request_id = answer.infer_response.id or _UNKNOWN_ID
    answer.error_message = f"[request id: {request_id}] {outcome.code.name}: {outcome.message}"
    answer.infer_response.parameters["triton_final_response"].bool_param = True
    return answer.SerializeToString()
