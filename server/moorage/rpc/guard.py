"""What stands round every handler, so that each call ends with exactly one status, and with one of ours."""

import asyncio
import contextlib
import functools
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Never, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from moorage.domain.errors import InvalidRequest, MoorageError
from moorage.rpc.status import outcome_of, outcome_of_bug
from moorage_protocol.services import Method

if TYPE_CHECKING:  # generic in its stubs only
    Context = grpc.aio.ServicerContext[Any, Any]

MAX_BODY_BYTES = 1024 * 1024
"""Of a request without tensors. Protobuf parses in one go: tens of milliseconds for a megabyte of tiny fields."""

log = logging.getLogger(__name__)

Request = TypeVar("Request", bound=Message)
T = TypeVar("T")


def unary(method: Method, handler: Callable[[Any], Awaitable[Message]]) -> "grpc.RpcMethodHandler[bytes, bytes]":
    """A handler from message to message, as gRPC registers it.

    Parsing happens inside the guard: what does not parse is INVALID_ARGUMENT.
    """

    async def call(body: bytes, _: "Context") -> bytes:
        response = await handler(parse(method.request, body))
        return response.SerializeToString()

    return raw_unary(call)


def raw_unary(call: "Callable[[bytes, Context], Awaitable[bytes]]") -> "grpc.RpcMethodHandler[bytes, bytes]":
    """A guarded handler that parses and serializes by itself."""

    @functools.wraps(call)
    async def guarded(body: bytes, context: "Context") -> bytes:
        try:
            return await call(body, context)
        except (Exception, asyncio.CancelledError) as error:
            await refuse(context, error)

    return grpc.unary_unary_rpc_method_handler(guarded)


def server_stream(
    call: "Callable[[bytes, Context], AsyncGenerator[bytes]]",
) -> "grpc.RpcMethodHandler[bytes, bytes]":
    """A guarded handler that answers one request with many messages."""
    return grpc.unary_stream_rpc_method_handler(_guarded_stream(call))


def two_way_stream(
    call: "Callable[[AsyncIterator[bytes], Context], AsyncGenerator[bytes]]",
) -> "grpc.RpcMethodHandler[bytes, bytes]":
    """A guarded handler that reads and answers many messages."""
    return grpc.stream_stream_rpc_method_handler(_guarded_stream(call))


def _guarded_stream(
    call: "Callable[[T, Context], AsyncGenerator[bytes]]",
) -> "Callable[[T, Context], Awaitable[None]]":
    """Writes by itself, as gRPC forgets to close a generator whose call ends during a write.

    So what the generator holds is given back at once, while the call's context is still alive.
    """

    @functools.wraps(call)
    async def guarded(request: T, context: "Context") -> None:
        try:
            async with contextlib.aclosing(call(request, context)) as messages:
                async for message in messages:
                    if not await _wrote(context, message):
                        return
        except (Exception, asyncio.CancelledError) as error:
            await refuse(context, error)

    return guarded


async def _wrote(context: "Context", message: bytes) -> bool:
    """Whether the message is on its way; false where nobody is there any more, which is no failure of ours."""
    try:
        await context.write(message)
    except grpc.aio.InternalError:
        return False
    return True


async def refuse(context: "Context", error: Exception | asyncio.CancelledError) -> Never:
    """End the call with the error's status. Must be called from an `except` clause.

    A cancellation of the call itself goes on its way: swallowed, it would leak the call. A CancelledError that comes
    from below while nobody cancelled the call is a bug like any other: passed on, it would send nothing at all and
    leave the client waiting.
    """
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
    if isinstance(error, MoorageError):
        await context.abort(*outcome_of(error))
    error_id = secrets.token_hex(6)
    log.error("internal error, id=%s", error_id, exc_info=error)
    await context.abort(*outcome_of_bug(error_id))


def parse(message_type: type[Request], body: bytes) -> Request:
    """The message that the bytes stand for. Raises InvalidRequest where they stand for none, or are too many."""
    if len(body) > MAX_BODY_BYTES:
        raise InvalidRequest("request", expected=f"at most {MAX_BODY_BYTES} bytes", got=str(len(body)))
    try:
        return message_type.FromString(body)
    except DecodeError:
        raise InvalidRequest(
            "request",
            expected=f"a serialized {message_type.DESCRIPTOR.full_name}",
            got=f"{len(body)} bytes that do not parse",
        ) from None
