"""Moments to act at. The core never sleeps: it says when it wants to be called again."""

import heapq
from collections.abc import Mapping
from typing import NamedTuple

from moorage.domain.model import ModelKey


class RequestDue(NamedTuple):
    """A request's deadline."""

    request_id: int


class LoadDue(NamedTuple):
    """A load has taken as long as it may."""

    key: ModelKey


class RestartDue(NamedTuple):
    """A worker that died may be started again."""

    worker: str


Due = RequestDue | LoadDue | RestartDue

# Below this many entries a clean-up costs more than it frees.
_COMPACT_ABOVE = 1024


class Timers:
    """A heap of moments. Entries are not removed when they lose their point: whoever takes one checks."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float | None:
        """The earliest moment, or None."""
        return self._heap[0][0] if self._heap else None

    def add(self, at_s: float, due: Due) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_s, self._sequence, due))

    def take_due(self, now: float) -> list[Due]:
        """Remove and return what is due, earliest first."""
        due: list[Due] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def compact(self, live_requests: Mapping[int, object]) -> None:
        """Drop the deadlines of requests that have ended, once they are most of the heap.

        Without this a server that answers quickly would carry every deadline for its full length.
        """
        if len(self._heap) < max(_COMPACT_ABOVE, 4 * len(live_requests)):
            return
        self._heap = [
            item for item in self._heap if not isinstance(item[2], RequestDue) or item[2].request_id in live_requests
        ]
        heapq.heapify(self._heap)
