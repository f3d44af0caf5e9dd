"""The asyncio client."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from moorage_client.batch_messages import BatchOptions, header_message
from moorage_client.batch_operations import AttachCall
from moorage_client.batches import Batch
from moorage_client.channels import CHANNEL_OPTIONS, Methods
from moorage_client.errors import Cancelled, ServerFailure, Unavailable, from_status
from moorage_client.operations import Operations
from moorage_client.outgoing import Items, Outgoing
from moorage_protocol import moorage_v1 as pb

Answer = TypeVar("Answer", bound=Message)

_DEFAULT_OPTIONS = BatchOptions()
# What grpc.aio makes of the status of a call that the server ends while something is written to it.
_LOST_STATUS = "Internal error from Core"


class Client(Operations):
    """A client of one server, for the running event loop. Use as `async with Client("host:port") as client:`.

    attempts: tries per call, the first included.
    timeout_s: of calls that compute nothing; `infer`, `load` and `unload` take their own.
    metadata: sent with every call, such as an authorization header.
    """

    def __init__(
        self,
        target: str,
        *,
        attempts: int = 3,
        timeout_s: float | None = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._aio_transport = _AioTransport(target, credentials, metadata)
        super().__init__(self._aio_transport, attempts=attempts, timeout_s=timeout_s)

    def batch(
        self,
        batch_id: str,
        model: str,
        items: Items,
        options: BatchOptions = _DEFAULT_OPTIONS,
        *,
        after_sequence: int = 0,
    ) -> Batch:
        """A batch of items for a model: opened, or gone on with where there is one of that id and the same options.

        Iterate over it for what becomes of each item. items: read as the server has room for them; of a batch that is
        gone on with, those that it has already cost nothing but the way. after_sequence: of the last result that is
        known from before. Raises InvalidRequest.
        """
        header = header_message(batch_id, model, options)

        def begin(after: int) -> _AioSubmission:
            return self._aio_transport.submit(pb.SubmitRequest(header=header, after_sequence=after))

        return Batch(batch_id, begin, Outgoing(items, until_result=not options.durable), after_sequence)

    def attach(self, batch_id: str, after_sequence: int = 0) -> Batch:
        """A batch that was submitted before, from an outcome on. Iterating raises ModelNotFound where there is none."""

        def begin(after: int) -> AttachCall:
            request = pb.AttachRequest(batch_id=batch_id, after_sequence=after)
            return AttachCall(self._aio_transport.stream("Attach", request, pb.AttachResponse))

        return Batch(batch_id, begin, None, after_sequence)

    async def close(self) -> None:
        """End the connection; calls under way raise Cancelled. A second close does nothing."""
        await self._aio_transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class _AioTransport:
    def __init__(
        self, target: str, credentials: grpc.ChannelCredentials | None, metadata: tuple[tuple[str, str], ...]
    ) -> None:
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, CHANNEL_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, CHANNEL_OPTIONS)
        self._metadata = metadata
        self._methods = Methods(self._channel)
        self._closed = False

    async def call(self, method: str, request: Message, answer: type[Answer], timeout_s: float | None) -> Answer:
        if self._closed:
            raise Cancelled("the client is closed")
        try:
            reply: Answer = await self._methods[method](request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise from_status(error.code(), error.details(), error.trailing_metadata()) from None
        except asyncio.CancelledError:
            if self._was_closed_meanwhile():
                raise Cancelled("the client was closed") from None
            raise
        return reply

    def stream(self, method: str, request: Message, answer: type[Answer]) -> "_AioStream[Answer]":
        if self._closed:
            raise Cancelled("the client is closed")
        return _AioStream(self._methods[method](request, metadata=self._metadata))

    def submit(self, opening: pb.SubmitRequest) -> "_AioSubmission":
        """Begin a call that sends a batch's items. Raises Cancelled where the client is closed."""
        if self._closed:
            raise Cancelled("the client is closed")
        return _AioSubmission(self._methods["Submit"](metadata=self._metadata), opening)

    def _was_closed_meanwhile(self) -> bool:
        """Whether a cancellation came from closing the channel, not from whoever cancelled the caller's task."""
        return self._closed and not _is_being_cancelled()

    async def connect(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._channel.channel_ready()
        except TimeoutError:
            return False
        return True

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    async def close(self) -> None:
        self._closed = True
        await self._channel.close()


class _AioStream(Generic[Answer]):
    def __init__(self, call: Any) -> None:
        self._call = call
        self._reading: asyncio.Future[Any] | None = None

    async def read(self) -> Answer | None:
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._call.read())
        try:
            # gRPC ends a call whose read is cancelled. Who stops waiting does not mean that: `cancel` does.
            answer = await asyncio.shield(self._reading)
        except grpc.aio.AioRpcError as error:
            raise from_status(error.code(), error.details(), error.trailing_metadata()) from None
        except asyncio.CancelledError:
            if not _is_being_cancelled():
                raise Cancelled("the client was closed, or the call cancelled") from None
            raise
        self._reading = None
        return None if answer is grpc.aio.EOF else answer

    def cancel(self) -> None:
        self._call.cancel()


class _AioSubmission(_AioStream[pb.SubmitResponse]):
    """See batches.BatchCall."""

    def __init__(self, call: Any, opening: pb.SubmitRequest) -> None:
        super().__init__(call)
        self._opening: pb.SubmitRequest | None = opening

    async def read(self) -> pb.SubmitResponse | None:
        if self._opening is not None:
            opening, self._opening = self._opening, None
            with contextlib.suppress(Unavailable):  # reading tells more
                await self.write(opening)
        try:
            return await super().read()
        except ServerFailure as error:
            if error.message == _LOST_STATUS:
                raise Unavailable("the server has ended the call") from None
            raise

    async def write(self, request: pb.SubmitRequest) -> None:
        try:
            await self._call.write(request)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise Unavailable("the call has ended") from error

    async def done_writing(self) -> None:
        await self._call.done_writing()


def _is_being_cancelled() -> bool:
    """Whether a CancelledError is meant for the task that runs."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
