"""A status becomes the error of its kind, with the server's advice on trying again."""

import sys

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

import moorage_client
from moorage_client import Holder, MoorageClientError
from moorage_client.errors import from_status
from moorage_client.holders import parse_holders


def details(*, seconds: int, nanos: int) -> bytes:
    packed = [AnyMessage(), AnyMessage()]
    packed[0].Pack(ErrorInfo(reason="QUEUE_FULL"))
    packed[1].Pack(RetryInfo(retry_delay=Duration(seconds=seconds, nanos=nanos)))
    serialized: bytes = Status(code=8, details=packed).SerializeToString()
    return serialized


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_keeps_its_name_and_message(code: grpc.StatusCode) -> None:
    error = from_status(code, "what happened")
    assert (error.code, error.message, str(error)) == (code.name, "what happened", "what happened")
    assert error.retry_after_s is None
    assert error.may_retry


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, moorage_client.InvalidRequest),
        (grpc.StatusCode.NOT_FOUND, moorage_client.ModelNotFound),
        (grpc.StatusCode.UNAVAILABLE, moorage_client.Unavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, moorage_client.Overloaded),
        (grpc.StatusCode.DEADLINE_EXCEEDED, moorage_client.DeadlineExceeded),
        (grpc.StatusCode.FAILED_PRECONDITION, moorage_client.FailedPrecondition),
        (grpc.StatusCode.UNIMPLEMENTED, moorage_client.NotSupported),
        (grpc.StatusCode.INTERNAL, moorage_client.ServerFailure),
        (grpc.StatusCode.UNKNOWN, MoorageClientError),
    ],
)
def test_the_kind_follows_from_the_code(code: grpc.StatusCode, kind: type[MoorageClientError]) -> None:
    assert type(from_status(code, "")) is kind


def test_pushback_is_in_seconds() -> None:
    error = from_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", [("grpc-retry-pushback-ms", "1500")])
    assert error.retry_after_s == 1.5


@pytest.mark.parametrize("pushback", ["-1", "soon"])
def test_pushback_can_forbid_another_try(pushback: str) -> None:
    error = from_status(grpc.StatusCode.UNAVAILABLE, "gone", [("grpc-retry-pushback-ms", pushback)])
    assert error.retry_after_s is None
    assert not error.may_retry


def test_retry_info_is_found_among_the_details() -> None:
    metadata = [("grpc-status-details-bin", details(seconds=2, nanos=250_000_000))]
    assert from_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", metadata).retry_after_s == 2.25


def test_without_the_package_for_details_there_is_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.rpc.status_pb2", None)
    metadata = [("grpc-status-details-bin", details(seconds=2, nanos=0))]
    assert from_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", metadata).retry_after_s is None


def test_broken_details_do_not_hide_the_error() -> None:
    error = from_status(grpc.StatusCode.NOT_FOUND, "no", [("grpc-status-details-bin", b"\xff\xff")])
    assert (error.code, error.retry_after_s) == ("NOT_FOUND", None)


def test_figures_and_holders_come_from_the_details(memory_details: bytes) -> None:
    error = from_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "no", [("grpc-status-details-bin", memory_details)])
    assert error.reason == "MEMORY_EXHAUSTED"
    assert error.details["bytes_needed"] == "7"
    assert error.held_by == (Holder("vad/1", "weights", 90), Holder("cuda:0", "context", 10))
    without = from_status(grpc.StatusCode.NOT_FOUND, "no")
    assert (without.reason, dict(without.details), without.held_by) == ("", {}, ())


@pytest.mark.parametrize("text", ["", "a weights", "a weights ten", "a weights 1 2", "a weights \u0661", ", ,"])
def test_holders_that_are_none_are_left_out(text: str) -> None:
    assert parse_holders(text) == ()
    assert parse_holders(f"{text}, b/1 held 3") == (Holder("b/1", "held", 3),)
