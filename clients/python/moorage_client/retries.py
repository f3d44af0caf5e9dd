"""When to try again, and after how long. Inference is idempotent, so trying again is safe."""

import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from moorage_client.errors import DeadlineExceeded, MoorageClientError

_FIRST_DELAY_S = 0.1
_GROWTH = 2.0
_LONGEST_DELAY_S = 5.0

Answer = TypeVar("Answer")


def retry_delay_s(attempt: int, pushback_s: float | None, rng: random.Random) -> float:
    """Seconds between attempt number `attempt` (from 1), which failed, and the next.

    Exponential, spread over the upper half, so that clients refused together do not come back together. Never
    earlier than the server's pushback, if it gave one.
    """
    ceiling_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * _GROWTH ** min(attempt - 1, 16))
    backoff_s = rng.uniform(ceiling_s / 2, ceiling_s)
    return backoff_s if pushback_s is None else pushback_s + backoff_s / 2


def may_try_again(error: MoorageClientError) -> bool:
    """Whether another try can succeed: out of reach, or overloaded with a time to come back."""
    if not error.may_retry:
        return False
    return error.code == "UNAVAILABLE" or (error.code == "RESOURCE_EXHAUSTED" and error.retry_after_s is not None)


async def with_retries(
    call: Callable[[float | None], Awaitable[Answer]],
    *,
    sleep: Callable[[float], Awaitable[None]],
    rng: random.Random,
    attempts: int,
    timeout_s: float | None,
) -> Answer:
    """The answer of `call`, tried at most `attempts` times within `timeout_s`; each try is given the seconds left.

    Raises the last error as soon as it is final, as the tries are used up, or as the next would begin too late.
    Cancellation: ends the try or the wait under way; no further try is made.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    attempt = 1
    while True:
        left_s = None if deadline_s is None else deadline_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise DeadlineExceeded(f"no time left for attempt {attempt}")
        try:
            return await call(left_s)
        except MoorageClientError as error:
            if attempt >= attempts or not may_try_again(error):
                raise
            delay_s = retry_delay_s(attempt, error.retry_after_s, rng)
            if deadline_s is not None and time.monotonic() + delay_s >= deadline_s:
                raise
        await sleep(delay_s)
        attempt += 1
