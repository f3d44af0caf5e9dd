from collections.abc import Iterator
from typing import TypeVar

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status

from moorage.domain import batch_errors, errors
from moorage.rpc.status import TABLE, Outcome, outcome_of, outcome_of_bug

Code = grpc.StatusCode
Detail = TypeVar("Detail", bound=Message)

CASES: list[tuple[errors.MoorageError, grpc.StatusCode, str]] = [
    (errors.InvalidRequest("input 'x'", expected="4 bytes", got="3 bytes"), Code.INVALID_ARGUMENT, "INVALID_REQUEST"),
    (errors.NotSupported("no"), Code.UNIMPLEMENTED, "NOT_SUPPORTED"),
    (errors.ModelNotFound("m", "2"), Code.NOT_FOUND, "MODEL_NOT_FOUND"),
    (errors.ModelNotReady("m", "loading"), Code.UNAVAILABLE, "MODEL_NOT_READY"),
    (errors.LoadFailed("m", "no file"), Code.FAILED_PRECONDITION, "LOAD_FAILED"),
    (errors.WorkerLost("killed"), Code.UNAVAILABLE, "WORKER_LOST"),
    (errors.ServerDraining(), Code.UNAVAILABLE, "SERVER_DRAINING"),
    (
        errors.QueueFull("m", unit="rows", waiting=9, asked=2, limit=10, retry_after_s=0.25),
        Code.RESOURCE_EXHAUSTED,
        "QUEUE_FULL",
    ),
    (errors.RateLimited("m", unit="rows", limit_per_s=5.0, retry_after_s=0.2), Code.RESOURCE_EXHAUSTED, "RATE_LIMITED"),
    (
        errors.MemoryExhausted("model 'm'", device="cpu", needed_bytes=7, free_bytes=3),
        Code.RESOURCE_EXHAUSTED,
        "MEMORY_EXHAUSTED",
    ),
    (errors.OutOfMemory("a run", ("cuda:0", "cpu"), "no"), Code.RESOURCE_EXHAUSTED, "OUT_OF_MEMORY"),
    (
        errors.ModelTooLarge("model 'm'", device="cpu", needed_bytes=7, capacity_bytes=3),
        Code.FAILED_PRECONDITION,
        "MODEL_TOO_LARGE",
    ),
    (errors.Preempted(1.5, 3), Code.ABORTED, "PREEMPTED"),
    (errors.DeadlineExceeded(1.5, "queued"), Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
    (
        errors.DeadlineUnmeetable(0.5, 0.1, errors.TimeNeeded(1.0, 2.0, 3.0, 0.002)),
        Code.DEADLINE_EXCEEDED,
        "DEADLINE_CANNOT_BE_MET",
    ),
    (errors.DeviceLost("m", "abc", "secret"), Code.INTERNAL, "DEVICE_LOST"),
    (errors.InferenceFailed("m", "abc", "secret"), Code.INTERNAL, "INFERENCE_FAILED"),
    (errors.InputRefused("m", "too long"), Code.INVALID_ARGUMENT, "INPUT_REFUSED"),
    (errors.ContractBroken("m", "abc", "output 'y': expected 2 rows, got 1"), Code.INTERNAL, "CONTRACT_BROKEN"),
    (batch_errors.BatchNotFound("b"), Code.NOT_FOUND, "BATCH_NOT_FOUND"),
    (batch_errors.BatchExists("b"), Code.ALREADY_EXISTS, "BATCH_EXISTS"),
    (batch_errors.BatchActive("b"), Code.FAILED_PRECONDITION, "BATCH_ACTIVE"),
    (batch_errors.BatchEnded("b"), Code.FAILED_PRECONDITION, "BATCH_ENDED"),
    (batch_errors.BatchTakenOver("b"), Code.ABORTED, "BATCH_TAKEN_OVER"),
    (batch_errors.TooManyBatches(9, 9), Code.RESOURCE_EXHAUSTED, "TOO_MANY_BATCHES"),
    (batch_errors.StoreFull(), Code.RESOURCE_EXHAUSTED, "STORE_FULL"),
    (batch_errors.StoreFailed("disk I/O error"), Code.UNAVAILABLE, "STORE_FAILED"),
    (batch_errors.ResultTooLarge("i", 7), Code.FAILED_PRECONDITION, "RESULT_TOO_LARGE"),
]


def all_errors(base: type[errors.MoorageError] = errors.MoorageError) -> Iterator[type[errors.MoorageError]]:
    for subclass in base.__subclasses__():
        if subclass.__module__ in (errors.__name__, batch_errors.__name__):
            yield subclass
            yield from all_errors(subclass)


def status_of(outcome: Outcome) -> Status:
    packed = dict(outcome.trailing_metadata)["grpc-status-details-bin"]
    assert isinstance(packed, bytes)
    return Status.FromString(packed)


def detail_of(outcome: Outcome, kind: type[Detail]) -> Detail | None:
    for packed in status_of(outcome).details:
        detail = kind()
        if packed.Unpack(detail):
            return detail
    return None


def test_every_error_has_its_row_and_its_case() -> None:
    assert set(all_errors()) == set(TABLE) == {type(error) for error, _, _ in CASES}


@pytest.mark.parametrize(("error", "code", "reason"), CASES, ids=[reason for _, _, reason in CASES])
def test_statuses(error: errors.MoorageError, code: grpc.StatusCode, reason: str) -> None:
    outcome = outcome_of(error)
    assert (outcome.code, outcome.message) == (code, str(error))
    status = status_of(outcome)
    assert (status.code, status.message) == (code.value[0], str(error))
    info = detail_of(outcome, details.ErrorInfo)
    assert info is not None
    assert (info.reason, info.domain) == (reason, "moorage")
    retry = detail_of(outcome, details.RetryInfo)
    assert (retry is None) == (error.retry_after_s is None)
    pushed_back = "grpc-retry-pushback-ms" in dict(outcome.trailing_metadata)
    assert pushed_back == (code is Code.RESOURCE_EXHAUSTED)


def test_figures_can_be_read_by_machines() -> None:
    outcome = outcome_of(errors.QueueFull("m", unit="rows", waiting=9, asked=2, limit=10, retry_after_s=0.2501))
    info, retry = detail_of(outcome, details.ErrorInfo), detail_of(outcome, details.RetryInfo)
    quota = detail_of(outcome, details.QuotaFailure)
    assert info is not None
    assert dict(info.metadata) == {"model": "m", "unit": "rows", "waiting": "9", "asked": "2", "limit": "10"}
    assert retry is not None
    assert retry.retry_delay.ToMilliseconds() == 251
    assert quota is not None
    assert quota.violations[0].subject == "model:m"
    assert dict(outcome.trailing_metadata)["grpc-retry-pushback-ms"] == "251"


@pytest.mark.parametrize(
    ("error", "subject"),
    [
        (errors.QueueFull("m", unit="rows", waiting=9, asked=2, limit=10, retry_after_s=0.25), "model:m"),
        (errors.QueueFull("", unit="rows", waiting=9, asked=2, limit=10, retry_after_s=0.25), "server"),
        (errors.RateLimited("m", unit="rows", limit_per_s=5.0, retry_after_s=0.2), "model:m"),
        (errors.MemoryExhausted("model 'm'", device="cpu", needed_bytes=7, free_bytes=3), "device:cpu"),
        (errors.OutOfMemory("a run", ("cuda:0", "cpu"), "no"), "device:cpu"),
    ],
)
def test_whose_bound_it_is_can_be_read_by_machines(error: errors.MoorageError, subject: str) -> None:
    quota = detail_of(outcome_of(error), details.QuotaFailure)
    assert quota is not None
    assert [violation.subject for violation in quota.violations] == [subject]


def memory_exhausted(*holders: errors.Held) -> dict[str, str]:
    """What machines read of it."""
    error = errors.MemoryExhausted("model 'm'", device="cuda:0", needed_bytes=7, free_bytes=3, holders=holders)
    info = detail_of(outcome_of(error), details.ErrorInfo)
    assert info is not None
    return dict(info.metadata)


def test_who_holds_the_memory_can_be_read_by_machines() -> None:
    figures = memory_exhausted(
        errors.Held("a/1", "weights", 90), errors.Held("none", "state", 0), errors.Held("cuda:0", "context", 10)
    )
    assert figures == {
        "device": "cuda:0",
        "bytes_needed": "7",
        "bytes_free": "3",
        "held_by": "a/1 weights 90, cuda:0 context 10",
    }
    assert memory_exhausted()["held_by"] == ""


def test_of_many_holders_the_first_are_named_whole() -> None:
    many = memory_exhausted(*(errors.Held(f"m{number}/1", "weights", 9 - number) for number in range(9)))["held_by"]
    assert many.split(", ")[-1] == "m7/1 weights 2"
    long = memory_exhausted(*(errors.Held("x" * 250, "weights", 2**53) for _ in range(8)))["held_by"]
    assert {len(entry) for entry in long.split(", ")} == {250 + len(f" weights {2**53}")}
    assert len(long) <= 1024
    odd = memory_exhausted(errors.Held("a, b\n c", "held", 1), errors.Held("d", "held", 2))["held_by"]
    assert [entry.split(" ")[1:] for entry in odd.split(", ")] == [["held", "1"], ["held", "2"]]


def test_a_bad_field_is_named() -> None:
    bad = detail_of(outcome_of(CASES[0][0]), details.BadRequest)
    assert bad is not None
    assert bad.field_violations[0].field == "input 'x'"


def test_an_error_of_a_later_day_is_like_its_base() -> None:
    class Special(errors.QueueFull):
        """Not in the table."""

    error = Special("m", unit="rows", waiting=1, asked=1, limit=1, retry_after_s=1.0)
    assert outcome_of(error).code is Code.RESOURCE_EXHAUSTED


def test_trailers_stay_small_and_on_one_line() -> None:
    text = "\n\x00\u8a00" * 50_000
    outcome = outcome_of(errors.InvalidRequest(text, expected=text, got=text))
    assert "\n" not in outcome.message
    spelled_bytes = 3 * len(outcome.message.encode()) + sum(
        len(value) * 4 // 3 for _, value in outcome.trailing_metadata
    )
    assert spelled_bytes < 8 * 1024


def test_lines_are_joined_by_semicolons() -> None:
    outcome = outcome_of(errors.LoadFailed("m", "no inputs\n  name: expected 'm';\n\n\tgot 'n'\n"))
    assert outcome.message == "failed to load model 'm': no inputs; name: expected 'm'; got 'n'"


def test_bugs_are_told_by_their_id_alone() -> None:
    outcome = outcome_of_bug("abc123")
    assert (outcome.code, outcome.message) == (Code.INTERNAL, "internal error, id=abc123")
