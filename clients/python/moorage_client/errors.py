"""What can go wrong with a call, as exceptions; and how a gRPC status becomes one of them.

Every error says its `code` (the name of the gRPC status), a `message`, and in `retry_after_s` how long the server
asked to wait before trying again, where it said so.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import grpc

_PUSHBACK_KEY = "grpc-retry-pushback-ms"
_DETAILS_KEY = "grpc-status-details-bin"

MetadataPairs = Iterable[tuple[str, str | bytes]]


class MoorageClientError(Exception):
    """Base of all failures of a call.

    code: name of the gRPC status, such as "NOT_FOUND".
    retry_after_s: seconds the server asked to wait before trying again; None where it did not say.
    may_retry: false where the server said that trying again is pointless.
    """

    code = "UNKNOWN"

    def __init__(
        self, message: str, *, code: str | None = None, retry_after_s: float | None = None, may_retry: bool = True
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.retry_after_s = retry_after_s
        self.may_retry = may_retry


class InvalidRequest(MoorageClientError):
    """The request can't be right: the server said so, or it could not even be encoded."""

    code = "INVALID_ARGUMENT"


class ModelNotFound(MoorageClientError):
    """No such model, or no such version of it."""

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
    retry_after_s, may_retry = _retry_advice(metadata)
    kind = _BY_CODE.get(code.name, MoorageClientError)
    return kind(message or code.name, code=code.name, retry_after_s=retry_after_s, may_retry=may_retry)


def _retry_advice(metadata: MetadataPairs) -> tuple[float | None, bool]:
    """Seconds to wait, if the server said; and whether it left trying again open.

    A pushback that is negative or no number forbids another try, as gRPC's retry design has it.
    """
    values = dict(metadata)
    pushback = values.get(_PUSHBACK_KEY)
    if pushback is not None:
        try:
            pushback_s = int(pushback) / 1000
        except ValueError:
            return None, False
        return (pushback_s, True) if pushback_s >= 0 else (None, False)
    details = values.get(_DETAILS_KEY)
    return (_retry_info_s(details) if isinstance(details, bytes) else None), True


def _retry_info_s(details: bytes) -> float | None:
    """Seconds of the google.rpc.RetryInfo in these details; None without one, or without googleapis-common-protos."""
    try:
        status_pb2: Any = import_module("google.rpc.status_pb2")
        error_details_pb2: Any = import_module("google.rpc.error_details_pb2")
        message: Any = import_module("google.protobuf.message")
    except ImportError:
        return None
    retry_info = error_details_pb2.RetryInfo()
    try:
        for detail in status_pb2.Status.FromString(details).details:
            if detail.Unpack(retry_info):
                return float(retry_info.retry_delay.seconds + retry_info.retry_delay.nanos / 1e9)
    except message.DecodeError:
        pass  # the details are advice: the error is reported without them
    return None
