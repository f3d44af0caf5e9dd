"""What is going to happen, in virtual time. What is planned for the same moment happens in the order of planning."""

import heapq
from collections.abc import Callable
from typing import Any


class Agenda:
    """`now_s` only moves in `advance` and `pass_until`, and never back."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._planned: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._count = 0

    @property
    def next_s(self) -> float | None:
        """When something happens next; None for never."""
        return self._planned[0][0] if self._planned else None

    def at(self, time_s: float, happens: Callable[[Any], None], subject: object) -> None:
        """Plan a call of `happens` with the subject; at once, where that moment is past."""
        self._count += 1
        heapq.heappush(self._planned, (max(time_s, self.now_s), self._count, happens, subject))

    def after(self, delay_s: float, happens: Callable[[Any], None], subject: object) -> None:
        self.at(self.now_s + delay_s, happens, subject)

    def advance(self) -> None:
        """Let the next thing happen."""
        self.now_s, _, happens, subject = heapq.heappop(self._planned)
        happens(subject)

    def pass_until(self, time_s: float) -> None:
        """Let time pass in which nothing happens."""
        self.now_s = max(self.now_s, time_s)
