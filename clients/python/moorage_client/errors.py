"""What can go wrong with a call, as exceptions; and how a gRPC status becomes one of them.

Every error says its `code` (the name of the gRPC status), a `message`, and in `retry_after_s` how long the server
asked to wait before trying again, where it said so. A refusal of Moorage has its figures in `details`.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

import grpc

from moorage_client.holders import Holder, parse_holders
from moorage_protocol.google_rpc import Status

_PUSHBACK_KEY = "grpc-retry-pushback-ms"
_DETAILS_KEY = "grpc-status-details-bin"

MetadataPairs = Iterable[tuple[str, str | bytes]]


class Details(NamedTuple):
    """What the google.rpc details of a status say. figures: of its ErrorInfo."""

    reason: str = ""
    figures: Mapping[str, str] = MappingProxyType({})
    retry_after_s: float | None = None


NO_DETAILS = Details()


class MoorageClientError(Exception):
    """Base of all failures of a call.

    code: name of the gRPC status, such as "NOT_FOUND".
    retry_after_s: seconds the server asked to wait before trying again; None where it did not say.
    may_retry: false where the server said that trying again is pointless.
    reason: the server's word for the kind of failure, such as "MEMORY_EXHAUSTED"; empty where it gave none.
    details: its figures, by name, such as "bytes_needed" and "bytes_free" (docs/protocol.md lists them).
    """

    code = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retry_after_s: float | None = None,
        may_retry: bool = True,
        details: Details = NO_DETAILS,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.retry_after_s = retry_after_s
        self.may_retry = may_retry
        self.reason = details.reason
        self.details = details.figures

    @property
    def held_by(self) -> tuple[Holder, ...]:
        """Where memory was not free: who holds it, the largest first, at most eight; otherwise empty."""
        return parse_holders(self.details.get("held_by", ""))


class InvalidRequest(MoorageClientError):
    """The request can't be right: the server said so, or it could not even be encoded."""

    code = "INVALID_ARGUMENT"


class ModelNotFound(MoorageClientError):
    """No such model, version of it, or batch."""

    code = "NOT_FOUND"


class Unavailable(MoorageClientError):
    """The server can't be reached, is draining, or the model is not ready. Trying again may help."""

    code = "UNAVAILABLE"


class Overloaded(MoorageClientError):
    """The server's queue or memory is exhausted. Try again after `retry_after_s`, where it is set."""

    code = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(MoorageClientError):
    """The answer did not come in time."""

    code = "DEADLINE_EXCEEDED"


class AlreadyExists(MoorageClientError):
    """There is one of that id already, and it is another."""

    code = "ALREADY_EXISTS"


class FailedPrecondition(MoorageClientError):
    """The server can't do it in its state, such as a model that can never fit the device."""

    code = "FAILED_PRECONDITION"


class Aborted(MoorageClientError):
    """The work was preempted and not started again."""

    code = "ABORTED"


class NotSupported(MoorageClientError):
    """The server does not do this."""

    code = "UNIMPLEMENTED"


class Unauthenticated(MoorageClientError):
    """The server does not know who calls."""

    code = "UNAUTHENTICATED"


class PermissionDenied(MoorageClientError):
    """The caller may not do this."""

    code = "PERMISSION_DENIED"


class Cancelled(MoorageClientError):
    """The call was cancelled on its way, or the client was closed."""

    code = "CANCELLED"


class ServerFailure(MoorageClientError):
    """The model raised, or the server has a bug. The message has an id to look up in the server's log."""

    code = "INTERNAL"


class InvalidResponse(MoorageClientError):
    """The answer contradicts itself, such as a byte count that does not match the shape."""

    code = "DATA_LOSS"


_BY_CODE: dict[str, type[MoorageClientError]] = {
    kind.code: kind
    for kind in (
        InvalidRequest,
        ModelNotFound,
        Unavailable,
        Overloaded,
        DeadlineExceeded,
        AlreadyExists,
        FailedPrecondition,
        Aborted,
        NotSupported,
        Unauthenticated,
        PermissionDenied,
        Cancelled,
        ServerFailure,
    )
}


def from_status(code: grpc.StatusCode, message: str | None, metadata: MetadataPairs = ()) -> MoorageClientError:
    """The error of a call that ended with that status, message and trailing metadata. Never raises."""
    values = dict(metadata)
    packed = values.get(_DETAILS_KEY)
    details = _read_details(packed) if isinstance(packed, bytes) else NO_DETAILS
    retry_after_s, may_retry = _retry_advice(values.get(_PUSHBACK_KEY), details)
    kind = _BY_CODE.get(code.name, MoorageClientError)
    return kind(message or code.name, code=code.name, retry_after_s=retry_after_s, may_retry=may_retry, details=details)


def from_status_message(status: Status) -> MoorageClientError:
    """The error that a google.rpc.Status stands for. Never raises."""
    return from_status(_code_of(status.code), status.message, ((_DETAILS_KEY, status.SerializeToString()),))


def _code_of(number: int) -> grpc.StatusCode:
    return next((code for code in grpc.StatusCode if code.value[0] == number), grpc.StatusCode.UNKNOWN)


def _retry_advice(pushback: str | bytes | None, details: Details) -> tuple[float | None, bool]:
    """Seconds to wait, if the server said; and whether it left trying again open.

    A pushback that is negative or no number forbids another try, as gRPC's retry design has it.
    """
    if pushback is None:
        return details.retry_after_s, True
    try:
        pushback_s = int(pushback) / 1000
    except ValueError:
        return None, False
    return (pushback_s, True) if pushback_s >= 0 else (None, False)


def _read_details(packed: bytes) -> Details:
    """What these details say; nothing without googleapis-common-protos, or where they are damaged."""
    try:
        status_pb2: Any = import_module("google.rpc.status_pb2")
        error_details_pb2: Any = import_module("google.rpc.error_details_pb2")
        message: Any = import_module("google.protobuf.message")
    except ImportError:
        return NO_DETAILS
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    retry_after_s: float | None = None
    try:
        for detail in status_pb2.Status.FromString(packed).details:
            if detail.Unpack(retry):
                retry_after_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
            else:
                detail.Unpack(info)
    except message.DecodeError:
        return NO_DETAILS  # the details are advice: the error is reported without them
    return Details(info.reason, MappingProxyType(dict(info.metadata)), retry_after_s)
