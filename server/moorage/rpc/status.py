"""Every failure's status on the wire: one table."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status

from moorage.domain import batch_errors, errors

DOMAIN = "moorage"
_MAX_TEXT = (
    512  # a client accepts about 8 KiB of trailers; this text is in them twice, nine bytes for a character at worst
)
_MAX_FIGURE = 256
_MAX_HOLDERS = 8
_MAX_HOLDERS_TEXT = 1024
_DETAILS_KEY = "grpc-status-details-bin"
_PUSHBACK_KEY = "grpc-retry-pushback-ms"

_Code = grpc.StatusCode


class Row(NamedTuple):
    """figures: attributes of the error that go into ErrorInfo.metadata, some under another name there."""

    code: grpc.StatusCode
    reason: str
    figures: tuple[str, ...] = ()


TABLE: dict[type[errors.MoorageError], Row] = {
    errors.InvalidRequest: Row(_Code.INVALID_ARGUMENT, "INVALID_REQUEST", ("field", "expected", "got")),
    errors.NotSupported: Row(_Code.UNIMPLEMENTED, "NOT_SUPPORTED"),
    errors.ModelNotFound: Row(_Code.NOT_FOUND, "MODEL_NOT_FOUND", ("name", "version")),
    errors.ModelNotReady: Row(_Code.UNAVAILABLE, "MODEL_NOT_READY", ("name",)),
    errors.LoadFailed: Row(_Code.FAILED_PRECONDITION, "LOAD_FAILED", ("name",)),
    errors.WorkerLost: Row(_Code.UNAVAILABLE, "WORKER_LOST"),
    errors.ServerDraining: Row(_Code.UNAVAILABLE, "SERVER_DRAINING"),
    errors.QueueFull: Row(_Code.RESOURCE_EXHAUSTED, "QUEUE_FULL", ("model", "unit", "waiting", "asked", "limit")),
    errors.RateLimited: Row(_Code.RESOURCE_EXHAUSTED, "RATE_LIMITED", ("model", "unit", "limit_per_s")),
    errors.OutOfMemory: Row(_Code.RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", ("device", "tried")),
    errors.MemoryExhausted: Row(_Code.RESOURCE_EXHAUSTED, "MEMORY_EXHAUSTED", ("device", "needed_bytes", "free_bytes")),
    errors.ModelTooLarge: Row(
        _Code.FAILED_PRECONDITION, "MODEL_TOO_LARGE", ("device", "needed_bytes", "capacity_bytes")
    ),
    errors.Preempted: Row(_Code.ABORTED, "PREEMPTED", ("waited_s", "times")),
    errors.DeadlineUnmeetable: Row(
        _Code.DEADLINE_EXCEEDED,
        "DEADLINE_CANNOT_BE_MET",
        ("waited_s", "left_s", "wait_s", "load_s", "run_s", "answer_s"),
    ),
    errors.DeadlineExceeded: Row(_Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", ("waited_s", "state")),
    errors.ContractBroken: Row(_Code.INTERNAL, "CONTRACT_BROKEN", ("model", "error_id", "reason")),
    errors.InputRefused: Row(_Code.INVALID_ARGUMENT, "INPUT_REFUSED", ("model", "reason")),
    errors.DeviceLost: Row(_Code.INTERNAL, "DEVICE_LOST", ("model", "error_id")),
    errors.InferenceFailed: Row(_Code.INTERNAL, "INFERENCE_FAILED", ("model", "error_id")),
    batch_errors.BatchNotFound: Row(_Code.NOT_FOUND, "BATCH_NOT_FOUND", ("batch_id",)),
    batch_errors.BatchExists: Row(_Code.ALREADY_EXISTS, "BATCH_EXISTS", ("batch_id",)),
    batch_errors.BatchActive: Row(_Code.FAILED_PRECONDITION, "BATCH_ACTIVE", ("batch_id",)),
    batch_errors.BatchEnded: Row(_Code.FAILED_PRECONDITION, "BATCH_ENDED", ("batch_id",)),
    batch_errors.BatchTakenOver: Row(_Code.ABORTED, "BATCH_TAKEN_OVER", ("batch_id",)),
    batch_errors.TooManyBatches: Row(_Code.RESOURCE_EXHAUSTED, "TOO_MANY_BATCHES", ("running", "limit")),
    batch_errors.StoreFull: Row(_Code.RESOURCE_EXHAUSTED, "STORE_FULL"),
    batch_errors.StoreFailed: Row(_Code.UNAVAILABLE, "STORE_FAILED"),
    batch_errors.ResultTooLarge: Row(_Code.FAILED_PRECONDITION, "RESULT_TOO_LARGE", ("item_id", "limit_bytes")),
}

_UNKNOWN = Row(_Code.INTERNAL, "INTERNAL")

_METADATA_NAMES = {"needed_bytes": "bytes_needed", "free_bytes": "bytes_free", "capacity_bytes": "bytes_capacity"}


class Outcome(NamedTuple):
    """What `context.abort` takes."""

    code: grpc.StatusCode
    message: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...]


def status_of(error: errors.MoorageError) -> Status:
    """A failure that the caller may see, with google.rpc details."""
    row = _row_of(type(error))
    message = _cut(error.message, _MAX_TEXT)
    packed = [_pack(detail) for detail in _details(error, row, message)]
    return Status(code=row.code.value[0], message=message, details=packed)


def code_of(error: errors.MoorageError) -> grpc.StatusCode:
    """Of a failure's status."""
    return _row_of(type(error)).code


def outcome_of(error: errors.MoorageError) -> Outcome:
    """What ends a call with a failure's status."""
    row, status = _row_of(type(error)), status_of(error)
    trailing: list[tuple[str, str | bytes]] = [(_DETAILS_KEY, status.SerializeToString())]
    if row.code is _Code.RESOURCE_EXHAUSTED and error.retry_after_s is not None:
        trailing.append((_PUSHBACK_KEY, str(_milliseconds(error.retry_after_s))))
    return Outcome(row.code, status.message, tuple(trailing))


def status_of_bug(error_id: str) -> Status:
    """A failure that is our own fault: the caller gets an id, the log has the rest."""
    info = details.ErrorInfo(reason=_UNKNOWN.reason, domain=DOMAIN, metadata={"error_id": error_id})
    return Status(code=_UNKNOWN.code.value[0], message=f"internal error, id={error_id}", details=[_pack(info)])


def outcome_of_bug(error_id: str) -> Outcome:
    """What ends a call with it."""
    status = status_of_bug(error_id)
    return Outcome(_UNKNOWN.code, status.message, ((_DETAILS_KEY, status.SerializeToString()),))


def _row_of(error_type: type[errors.MoorageError]) -> Row:
    """The row of the nearest class that has one."""
    return next((TABLE[base] for base in error_type.__mro__ if base in TABLE), _UNKNOWN)


def _details(error: errors.MoorageError, row: Row, message: str) -> Iterator[Message]:
    figures = _figures(error, row)
    yield details.ErrorInfo(reason=row.reason, domain=DOMAIN, metadata=figures)
    if error.retry_after_s is not None:
        retry = details.RetryInfo()
        retry.retry_delay.FromMilliseconds(_milliseconds(error.retry_after_s))
        yield retry
    if isinstance(error, errors.InvalidRequest):
        violation = details.BadRequest.FieldViolation(field=figures["field"], description=_cut(message, _MAX_FIGURE))
        yield details.BadRequest(field_violations=[violation])
    subject = _quota_subject(error)
    if subject:
        yield details.QuotaFailure(violations=[{"subject": subject, "description": _cut(message, _MAX_FIGURE)}])


def _figures(error: errors.MoorageError, row: Row) -> dict[str, str]:
    figures = {_METADATA_NAMES.get(name, name): _cut(str(getattr(error, name)), _MAX_FIGURE) for name in row.figures}
    if isinstance(error, errors.MemoryExhausted):
        figures["held_by"] = _holders_text(error.holders)
    return figures


def _holders_text(holders: tuple[errors.Held, ...]) -> str:
    """The first of them, each as "OWNER KIND BYTES", with ", " between; those for whom there is room."""
    entries: list[str] = []
    for holder in [holder for holder in holders if holder.size_bytes][:_MAX_HOLDERS]:
        owner = "_".join(_cut(holder.owner, _MAX_FIGURE).replace(",", " ").split())
        entries.append(f"{owner} {holder.kind} {holder.size_bytes}")
        if len(", ".join(entries)) > _MAX_HOLDERS_TEXT:
            return ", ".join(entries[:-1])
    return ", ".join(entries)


def _quota_subject(error: errors.MoorageError) -> str:
    """Whose bound it is, as QuotaFailure has it; empty where no bound was met."""
    if isinstance(error, errors.QueueFull) and not error.model:
        return "server"
    if isinstance(error, errors.QueueFull | errors.RateLimited):
        return f"model:{error.model}"
    return f"device:{error.device}" if isinstance(error, errors.MemoryExhausted) else ""


def _pack(detail: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))


def _cut(text: str, limit: int) -> str:
    """The text without control characters, and no longer than the limit; its lines joined by semicolons."""
    lines = [line.strip() for line in text[: limit + 1].splitlines()]
    joined = "; ".join(line.rstrip(";") for line in lines if line)
    plain = re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", " ", joined)
    return plain if len(text) <= limit and len(plain) <= limit else plain[: limit - 3] + "..."
