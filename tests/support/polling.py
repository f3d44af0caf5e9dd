"""Waiting for what comes about by itself, for a bounded time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], *, within_s: float = 10.0, what: str = "the condition") -> T:
    """The first truthy value of `look`. Raises AssertionError where none comes in time."""
    deadline_s = time.monotonic() + within_s
    while not (value := look()):
        assert time.monotonic() < deadline_s, f"{what}: not within {within_s:g} s, last {value!r}"
        time.sleep(0.02)
    return value
