import pytest

from moorage.domain.errors import (
    DeadlineExceeded,
    Held,
    InferenceFailed,
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    ModelNotFound,
    ModelNotReady,
    ModelTooLarge,
    MoorageError,
    NotSupported,
    Preempted,
    QueueFull,
    ServerDraining,
    WorkerLost,
)

CASES = [
    (InvalidRequest("rows", expected="1", got="2"), "rows: expected 1, got 2", None),
    (NotSupported("no such thing"), "no such thing", None),
    (ModelNotFound("m"), "Request for unknown model: 'm' is not found", None),
    (ModelNotFound("m", "3"), "Request for unknown model: 'm' version 3 is not found", None),
    (ModelNotReady("m", "loading"), "model 'm' is not ready: loading", 1.0),
    (ModelNotReady("m", "broken", retry_after_s=None), "model 'm' is not ready: broken", None),
    (LoadFailed("m", "no file"), "failed to load model 'm': no file", None),
    (WorkerLost("killed", retry_after_s=4.0), "the worker process was lost: killed", 4.0),
    (ServerDraining(), "the server is shutting down and has stopped accepting new requests", 1.0),
    (
        QueueFull("m", unit="rows", waiting=4, asked=2, limit=5, retry_after_s=0.5),
        "queue of model 'm' is full: 4 rows waiting, 2 more asked, limit 5",
        0.5,
    ),
    (
        MemoryExhausted("model 'm'", device="cpu", needed_bytes=9, free_bytes=4),
        "model 'm' needs 9 bytes on cpu, and 4 can be had",
        1.0,
    ),
    (
        MemoryExhausted("a hold", device="cpu", needed_bytes=9, free_bytes=4, holders=(Held("m/1", "weights", 5),)),
        "a hold needs 9 bytes on cpu, and 4 can be had",
        1.0,
    ),
    (
        Preempted(2.5, 3),
        "preempted 3 times by work of higher priority; its deadline came after 2.500 s",
        1.0,
    ),
    (
        ModelTooLarge("model 'm'", device="cpu", needed_bytes=9, capacity_bytes=4),
        "model 'm' needs 9 bytes, but cpu has a capacity of 4 bytes",
        None,
    ),
    (DeadlineExceeded(1.5, "while it waited"), "deadline exceeded after 1.500 s, while it waited", None),
    (
        InferenceFailed("m", "e1", "ValueError: secret"),
        "inference failed in model 'm', error id e1",
        None,
    ),
]


@pytest.mark.parametrize(("error", "message", "retry_after_s"), CASES, ids=lambda case: type(case).__name__)
def test_what_the_caller_is_told(error: MoorageError, message: str, retry_after_s: float | None) -> None:
    assert error.message == message
    assert error.retry_after_s == retry_after_s


def test_errors_carry_their_figures() -> None:
    holders = (Held("m/1", "weights", 5), Held("hold 7", "held", 3))
    exhausted = MemoryExhausted("a hold", device="cpu", needed_bytes=9, free_bytes=4, holders=holders)
    assert (exhausted.device, exhausted.needed_bytes, exhausted.free_bytes, exhausted.holders) == ("cpu", 9, 4, holders)
    assert MemoryExhausted("a hold", device="cpu", needed_bytes=9, free_bytes=4).holders == ()
    preempted = Preempted(2.5, 3, retry_after_s=0.5)
    assert (preempted.waited_s, preempted.times, preempted.retry_after_s) == (2.5, 3, 0.5)
