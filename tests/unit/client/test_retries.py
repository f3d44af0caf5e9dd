"""Retries are few, spread, never too early for the server and never too late for the caller."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_client.errors import DeadlineExceeded, MoorageClientError, Overloaded, ServerFailure, Unavailable
from moorage_client.retries import may_try_again, retry_delay_s, with_retries

SEEDS = st.integers(0, 2**32)


@given(st.integers(1, 10_000), SEEDS)
def test_backoff_grows_to_a_bound(attempt: int, seed: int) -> None:
    ceiling_s = min(5.0, 0.1 * 2 ** min(attempt - 1, 16))
    assert ceiling_s / 2 <= retry_delay_s(attempt, None, random.Random(seed)) <= ceiling_s


@given(st.integers(1, 20), st.floats(0, 3600), SEEDS)
def test_never_before_the_server_said(attempt: int, pushback_s: float, seed: int) -> None:
    assert retry_delay_s(attempt, pushback_s, random.Random(seed)) >= pushback_s


def test_the_same_seed_gives_the_same_delay() -> None:
    assert retry_delay_s(3, 0.5, random.Random(1)) == retry_delay_s(3, 0.5, random.Random(1))


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (Unavailable("gone"), True),
        (Unavailable("gone for good", may_retry=False), False),
        (Overloaded("full", retry_after_s=1.0), True),
        (Overloaded("out of memory"), False),
        (DeadlineExceeded("late"), False),
        (ServerFailure("the model raised"), False),
    ],
)
def test_only_what_can_succeed_is_tried_again(error: MoorageClientError, again: bool) -> None:
    assert may_try_again(error) is again


class Script:
    """A call that fails in the given way, over and over, until its failures are used up."""

    def __init__(self, *failures: MoorageClientError) -> None:
        self.failures = list(failures)
        self.slept_s: list[float] = []
        self.given_s: list[float | None] = []

    async def call(self, left_s: float | None) -> str:
        self.given_s.append(left_s)
        if self.failures:
            raise self.failures.pop(0)
        return "answer"

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)

    def run(self, attempts: int, timeout_s: float | None) -> str:
        return asyncio.run(
            with_retries(self.call, sleep=self.sleep, rng=random.Random(0), attempts=attempts, timeout_s=timeout_s)
        )


def test_it_succeeds_after_failures() -> None:
    script = Script(Unavailable("1"), Overloaded("2", retry_after_s=0.7))
    assert script.run(3, None) == "answer"
    assert len(script.slept_s) == 2
    assert script.slept_s[1] >= 0.7


def test_the_last_error_comes_out_when_the_tries_are_used_up() -> None:
    script = Script(*(Unavailable(str(number)) for number in range(1, 5)))
    with pytest.raises(Unavailable, match="3"):
        script.run(3, None)
    assert len(script.slept_s) == 2


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    script = Script(Overloaded("full", retry_after_s=60.0))
    with pytest.raises(Overloaded):
        script.run(3, 5.0)
    assert script.slept_s == []


def test_every_try_gets_the_time_that_is_left() -> None:
    script = Script(Unavailable("1"))
    script.run(3, 5.0)
    first_s, second_s = script.given_s
    assert first_s is not None
    assert second_s is not None
    assert 0 < second_s <= first_s <= 5.0


def test_no_time_at_all_is_a_deadline_exceeded() -> None:
    script = Script()
    with pytest.raises(DeadlineExceeded):
        script.run(3, 0.0)
    assert script.given_s == []
