"""ModelStreamInfer: many requests and answers on one call.

A stream has two tasks: one reads requests and queues them, one writes answers. Between them is a window of so many
requests and bytes. While it is full nothing is read, so that HTTP/2's flow control slows the client down; and who does
not read the answers leaves the window full. The answers of decoupled models have a window of their own: while that is
full these requests are paused.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING

from moorage.domain.errors import MoorageError, ServerDraining
from moorage.rpc.codec import Call, Decoder
from moorage.rpc.outbox import Answer, Outbox, Window
from moorage.rpc.ports import Backend

if TYPE_CHECKING:
    from moorage.rpc.guard import Context

_GRPC_ERROR_KEY = "triton_grpc_error"


class Streams:
    """All that are open."""

    def __init__(self, backend: Backend, window: Window) -> None:
        self._backend = backend
        self._window = window
        self._decoder = Decoder(backend, decoupled=True)
        self._open: set[_Stream] = set()
        self._closing = False

    async def model_stream_infer(self, bodies: AsyncIterator[bytes], context: "Context") -> AsyncGenerator[bytes]:
        """Serialized ModelInferRequests to serialized ModelStreamInferResponses: in the same order, but for those of
        decoupled models, which come as they are made.

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
        self._context = context
        self._metadata = context.invocation_metadata() or ()
        self._ends_on_error = (_GRPC_ERROR_KEY, "true") in {
            (key, str(value).lower()) for key, value in self._metadata if key == _GRPC_ERROR_KEY
        }
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._outbox = Outbox(backend, window, self._changed)
        self._is_closing = False

    def close(self) -> None:
        """Read no more."""
        self._is_closing = True
        self._news.set()

    def _changed(self) -> None:
        """There may be an answer to be written, or room for a request."""
        self._news.set()
        self._room.set()

    async def answers(self, bodies: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """See Streams.model_stream_infer."""
        reader = asyncio.create_task(self._read(bodies))
        reader.add_done_callback(lambda _: self._news.set())
        try:
            while await self._has_more(reader):
                answer = self._outbox.take()
                yield self._message(answer)
                self._outbox.written(answer)
                self._room.set()
        finally:
            reader.cancel()
            self._outbox.abandon()
            await asyncio.gather(reader, return_exceptions=True)

    def _message(self, answer: Answer) -> bytes:
        """What is written. Raises what the request failed with, where that ends the stream."""
        if answer.error is not None and (self._ends_on_error or not answer.message):
            raise answer.error
        return answer.message

    async def _has_more(self, reader: asyncio.Task[None]) -> bool:
        """Wait for an answer that can be written; False at the end. Raises what the reader raised."""
        while not self._outbox.has_answer:
            if self._outbox.is_empty and reader.done():
                await reader
                return False
            if self._outbox.is_empty and self._is_closing:
                raise ServerDraining
            self._news.clear()
            await self._news.wait()
        return True

    async def _read(self, bodies: AsyncIterator[bytes]) -> None:
        async for body in bodies:
            await self._queue(body)
            while self._outbox.is_full:
                self._room.clear()
                await self._room.wait()
            if self._is_closing:
                return

    async def _queue(self, body: bytes) -> None:
        """Have the engine take a request."""
        call = Call(self._backend.now(), self._context.time_remaining(), self._metadata)
        try:
            request, render = await self._decoder.decode(body, call)
        except MoorageError as error:
            self._outbox.refuse(body, error)
            return
        begin = self._outbox.begin_decoupled if render.decoupled else self._outbox.begin
        begin(body, request, render)
