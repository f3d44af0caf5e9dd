"""ModelStreamInfer: many requests and answers on one call.

A stream has two tasks: one reads requests and queues them, one writes the answers in the order of the requests.
Between them is a window of so many requests and bytes. While it is full nothing is read, so that HTTP/2's flow control
slows the client down; and who does not read the answers leaves the window full.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moorage.domain.errors import MoorageError, ServerDraining
from moorage.domain.tensor import OutputTensor
from moorage.rpc.codec import Call, Decoder
from moorage.rpc.ports import Backend
from moorage.rpc.render import Renderer
from moorage.rpc.status import Outcome, outcome_of
from moorage.rpc.wire import parse_inference, varint
from moorage_protocol import inference as pb

if TYPE_CHECKING:
    from moorage.rpc.guard import Context

_GRPC_ERROR_KEY = "triton_grpc_error"
_RESPONSE_TAG = bytes((2 << 3 | 2,))
_UNKNOWN_ID = "<id_unknown>"  # as Triton says it


def _final(*, is_final: bool) -> bytes:
    answer = pb.ModelInferResponse()
    answer.parameters["triton_final_response"].bool_param = is_final
    return answer.SerializeToString()


_FINAL = _final(is_final=True)


@dataclass(frozen=True, slots=True)
class Window:
    """What one stream may have under way: read, and its answer not yet taken by the client. A single request may be
    larger than max_bytes."""

    max_requests: int = 64
    max_bytes: int = 16 * 1024 * 1024


@dataclass(slots=True, eq=False)
class _Entry:
    """A request that was read. size_bytes: of it in the window. request_id: of the engine's, 0 where it has none."""

    answer: asyncio.Future[bytes]
    body: bytes
    size_bytes: int
    request_id: int = 0


class Streams:
    """All that are open."""

    def __init__(self, backend: Backend, window: Window) -> None:
        self._backend = backend
        self._window = window
        self._decoder = Decoder(backend)
        self._open: set[_Stream] = set()
        self._closing = False

    async def model_stream_infer(self, bodies: AsyncIterator[bytes], context: "Context") -> AsyncGenerator[bytes]:
        """Serialized ModelInferRequests to serialized ModelStreamInferResponses, in the same order.

        What fails is answered in its place with its id and status in words, and the stream goes on; where the client
        sent the metadata `triton_grpc_error: true`, the first failure ends it. Raises that MoorageError, and
        ServerDraining once the server stops and all that was read is answered. Cancellation: all requests leave the
        engine.
        """
        stream = _Stream(self._backend, self._decoder, self._window, context)
        self._open.add(stream)
        if self._closing:
            stream.close()
        try:
            async with contextlib.aclosing(stream.answers(bodies)) as answers:
                async for answer in answers:
                    yield answer
        finally:
            self._open.discard(stream)

    def close(self) -> None:
        """End every stream when what it has read is answered."""
        self._closing = True
        for stream in self._open:
            stream.close()


class _Stream:
    """One call."""

    def __init__(self, backend: Backend, decoder: Decoder, window: Window, context: "Context") -> None:
        self._backend = backend
        self._decoder = decoder
        self._window = window
        self._context = context
        self._metadata = context.invocation_metadata() or ()
        self._ends_on_error = (_GRPC_ERROR_KEY, "true") in {
            (key, str(value).lower()) for key, value in self._metadata if key == _GRPC_ERROR_KEY
        }
        self._entries: deque[_Entry] = deque()
        self._taken_bytes = 0
        self._room = asyncio.Event()
        self._news = asyncio.Event()
        self._is_read = self._is_closing = False

    def close(self) -> None:
        """Read no more."""
        self._is_closing = True
        self._news.set()

    async def answers(self, bodies: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """See Streams.model_stream_infer."""
        reader = asyncio.create_task(self._read(bodies))
        reader.add_done_callback(lambda _: self._news.set())
        try:
            while await self._has_more(reader):
                entry = self._entries[0]
                yield await self._answer(entry)
                self._entries.popleft()
                self._taken_bytes -= entry.size_bytes
                self._room.set()
        finally:
            reader.cancel()
            self._abandon()
            await asyncio.gather(reader, return_exceptions=True)

    async def _has_more(self, reader: asyncio.Task[None]) -> bool:
        """Wait for a request whose answer comes next; False at the end. Raises what the reader raised."""
        while not self._entries:
            if reader.done():
                await reader
                return False
            if self._is_closing:
                raise ServerDraining
            self._news.clear()
            await self._news.wait()
        return True

    async def _read(self, bodies: AsyncIterator[bytes]) -> None:
        async for body in bodies:
            await self._queue(body)
            self._news.set()
            while self._is_full():
                self._room.clear()
                await self._room.wait()
            if self._is_closing:
                return

    def _is_full(self) -> bool:
        return len(self._entries) >= self._window.max_requests or self._taken_bytes >= self._window.max_bytes

    async def _queue(self, body: bytes) -> None:
        """Have the engine take a request."""
        call = Call(self._backend.now(), self._context.time_remaining(), self._metadata)
        self._taken_bytes += len(body)
        try:
            request, render = await self._decoder.decode(body, call)
        except MoorageError as error:
            answer = asyncio.get_running_loop().create_future()
            answer.set_exception(error)
            self._entries.append(_Entry(answer, body, len(body)))
            return
        answer = self._backend.begin(request, _streamed(render))
        self._entries.append(_Entry(answer, body, len(body), request.request_id))

    async def _answer(self, entry: _Entry) -> bytes:
        try:
            return await entry.answer
        except MoorageError as error:
            if self._ends_on_error:
                raise
            return _failure(entry.body, outcome_of(error))

    def _abandon(self) -> None:
        """Nobody waits for an answer any more."""
        for entry in self._entries:
            if entry.request_id:
                self._backend.give_up(entry.request_id)
            if entry.answer.done() and not entry.answer.cancelled():
                entry.answer.exception()  # else asyncio says that nobody looked at it
        self._entries.clear()


def _streamed(render: Renderer) -> Callable[[tuple[OutputTensor, ...]], bytes]:
    """What renders the one answer to a request as a message of a stream."""

    def streamed(outputs: tuple[OutputTensor, ...]) -> bytes:
        parts = render.parts(outputs)
        size_bytes = sum(map(len, parts)) + len(_FINAL)
        return b"".join((_RESPONSE_TAG, varint(size_bytes), *parts, _FINAL))

    return streamed


def _failure(body: bytes, outcome: Outcome) -> bytes:
    """The answer to a request that failed. Python's tritonclient keeps of it the text alone."""
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
