"""The transport of the blocking client."""

from collections.abc import Coroutine
from time import sleep
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from moorage_client.channels import CHANNEL_OPTIONS, Methods
from moorage_client.errors import Cancelled, from_status

Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine over the blocking transport, which never suspends: one push runs it to its end.

    No event loop, hence no thread: grpc.aio in a second thread's loop would disturb a loop the caller may have.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise AssertionError("a blocking operation suspended")


class BlockingTransport:
    def __init__(
        self, target: str, credentials: grpc.ChannelCredentials | None, metadata: tuple[tuple[str, str], ...]
    ) -> None:
        if credentials is None:
            self._channel = grpc.insecure_channel(target, CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(target, credentials, CHANNEL_OPTIONS)
        self._metadata = metadata
        self._methods = Methods(self._channel)
        self._closed = False

    async def call(self, method: str, request: Message, answer: type[Answer], timeout_s: float | None) -> Answer:
        try:
            reply: Answer = self._start(method, request, timeout_s)
        except grpc.RpcError as error:
            call: Any = error  # what a unary call raises is also a grpc.Call
            raise from_status(call.code(), call.details(), call.trailing_metadata() or ()) from None
        return reply

    def stream(self, method: str, request: Message, answer: type[Answer]) -> "_BlockingStream[Answer]":
        return _BlockingStream(self._start(method, request, None))

    def _start(self, method: str, request: Message, timeout_s: float | None) -> Any:
        if self._is_closed():
            raise Cancelled("the client is closed")
        try:
            return self._methods[method](request, timeout=timeout_s, metadata=self._metadata)
        except ValueError:
            if self._is_closed():  # by another thread, just now: gRPC says so with a ValueError
                raise Cancelled("the client was closed") from None
            raise

    async def connect(self, timeout_s: float) -> bool:
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            return False
        finally:
            ready.cancel()
        return True

    async def sleep(self, delay_s: float) -> None:
        sleep(delay_s)  # noqa: ASYNC251 blocking is what this transport is for

    def _is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._channel.close()


class _BlockingStream(Generic[Answer]):
    def __init__(self, call: Any) -> None:
        self._call = call

    async def read(self) -> Answer | None:
        try:
            answer: Answer | None = next(self._call, None)
        except grpc.RpcError:
            call = self._call
            raise from_status(call.code(), call.details(), call.trailing_metadata() or ()) from None
        return answer

    def cancel(self) -> None:
        self._call.cancel()
