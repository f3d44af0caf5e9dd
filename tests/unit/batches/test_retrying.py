"""Whether and when an item is tried again."""

import pytest

from moorage.batches.header import RetryPolicy
from moorage.batches.retrying import Retry, decide
from moorage.domain.errors import (
    InputRefused,
    ModelNotReady,
    MoorageError,
    Preempted,
    QueueFull,
    RateLimited,
    ServerDraining,
    WorkerLost,
)

POLICY = RetryPolicy(attempts=3, first_backoff_s=1.0, max_backoff_s=3.0)


@pytest.mark.parametrize(
    ("attempts", "jitter", "delay_s"), [(1, 1.0, 1.0), (1, 0.0, 0.5), (2, 1.0, 2.0), (2, 0.5, 1.5)]
)
def test_backoff_doubles_and_is_spread(attempts: int, jitter: float, delay_s: float) -> None:
    error = WorkerLost("killed", retry_after_s=0.0)
    assert decide(POLICY, error, "UNAVAILABLE", attempts, jitter) == Retry(delay_s, costs_attempt=True)


def test_backoff_is_bounded_and_never_before_what_the_server_asks() -> None:
    policy = RetryPolicy(attempts=100, first_backoff_s=1.0, max_backoff_s=3.0)
    assert decide(policy, WorkerLost("x", retry_after_s=0.0), "UNAVAILABLE", 99, 1.0) == Retry(3.0, costs_attempt=True)
    assert decide(policy, Preempted(1.0, 1, retry_after_s=9.0), "ABORTED", 1, 0.0) == Retry(9.0, costs_attempt=True)


def test_the_last_try_and_codes_that_do_not_help_are_final() -> None:
    assert decide(POLICY, WorkerLost("killed"), "UNAVAILABLE", 3, 0.0) is None
    assert decide(POLICY, InputRefused("m", "no"), "INVALID_ARGUMENT", 1, 0.0) is None
    assert decide(RetryPolicy(codes=("ABORTED",)), WorkerLost("killed"), "UNAVAILABLE", 1, 0.0) is None


@pytest.mark.parametrize(
    "error",
    [
        QueueFull("m", unit="rows", waiting=1, asked=1, limit=1, retry_after_s=0.25),
        RateLimited("m", unit="rows", limit_per_s=1.0, retry_after_s=0.25),
        ModelNotReady("m", "loading", retry_after_s=0.25),
        ServerDraining(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_was_refused_before_anything_was_tried_costs_no_attempt(error: MoorageError) -> None:
    retry = decide(RetryPolicy(attempts=1, codes=()), error, "RESOURCE_EXHAUSTED", 50, 0.0)
    assert retry == Retry(error.retry_after_s or 0.0, costs_attempt=False)
