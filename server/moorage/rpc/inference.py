"""ModelInfer."""

from typing import TYPE_CHECKING

from moorage.rpc.codec import Call, Decoder
from moorage.rpc.ports import Backend

if TYPE_CHECKING:
    from moorage.rpc.guard import Context


class Inference:
    """Decodes, has the engine run it, and renders."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._decoder = Decoder(backend)

    async def model_infer(self, body: bytes, context: "Context") -> bytes:
        """A serialized ModelInferRequest to a serialized ModelInferResponse.

        Raises MoorageError, NotSupported for a decoupled model. Cancellation: the request leaves the engine.
        """
        call = Call(self._backend.now(), context.time_remaining(), context.invocation_metadata() or ())
        request, render = await self._decoder.decode(body, call)
        return await self._backend.infer(request, render)
