"""What payloads and outcomes of batches mean: requests and answers of the inference protocol."""

import logging
import secrets

import grpc

from moorage.batches.header import Header
from moorage.batches.ports import Failure, Prepared
from moorage.domain.errors import MoorageError
from moorage.domain.tensor import OutputTensor
from moorage.rpc.batch_render import framed
from moorage.rpc.codec import Call, Decoder
from moorage.rpc.ports import Backend
from moorage.rpc.status import code_of, status_of, status_of_bug

log = logging.getLogger(__name__)


class BatchEdge:
    """See batches.ports.Edge."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._decoder = Decoder(backend, decoupled=True)

    async def prepare(self, payload: bytes, item_id: str, header: Header, remaining_s: float) -> Prepared:
        """The item's request. Its own priority and timeout win over the batch's. Raises any MoorageError."""
        call = Call(self._backend.now(), remaining_s, (("priority", str(header.priority)),))
        target = (header.model, header.model_version)
        request, render = await self._decoder.decode(payload, call, target=target, client_id=item_id)

        def rendered(outputs: tuple[OutputTensor, ...]) -> bytes:
            return framed(render.parts(outputs)) if outputs or not render.decoupled else b""

        return Prepared(request, rendered, render.decoupled)

    def failure(self, error: BaseException) -> Failure:
        """How an error is told. A bug is logged."""
        if isinstance(error, MoorageError):
            return Failure(code_of(error).name, framed([status_of(error).SerializeToString()]))
        error_id = secrets.token_hex(6)
        log.error("internal error, id=%s", error_id, exc_info=error)
        return Failure(grpc.StatusCode.INTERNAL.name, framed([status_of_bug(error_id).SerializeToString()]))
