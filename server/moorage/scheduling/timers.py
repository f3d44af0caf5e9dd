"""Moments to act at. The core never sleeps: it says when it wants to be called again."""

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple

from moorage.domain.model import ModelKey


class RequestDue(NamedTuple):
    """A request's deadline."""

    request_id: int


class RunDue(NamedTuple):
    """Long after the last of a run's requests was answered or left."""

    run_id: int


class LoadDue(NamedTuple):
    """A load has taken as long as it may."""

    key: ModelKey


class MoveDue(NamedTuple):
    """An unload, or a move to the host or back, has taken as long as it may."""

    key: ModelKey


class StatesDue(NamedTuple):
    """A worker was told to suspend or drop states, and has taken as long as it may."""

    key: ModelKey


class CompanyDue(NamedTuple):
    """A model has waited for company as long as it should."""

    key: ModelKey


class GuardDue(NamedTuple):
    """A model that came into memory lately may be put out again from now on."""

    device: str


class HoldDue(NamedTuple):
    """A hold has waited as long as it may."""

    hold_id: int


class PauseDue(NamedTuple):
    """The caller of a paused request has been waited for as long as it should."""

    request_id: int


class RestartDue(NamedTuple):
    """A worker that died may be started again."""

    worker: str


Due = RequestDue | RunDue | LoadDue | MoveDue | StatesDue | CompanyDue | GuardDue | HoldDue | PauseDue | RestartDue

# Below this many entries a clean-up costs more than it frees.
_COMPACT_FROM = 1024


class Timers:
    """A heap of moments. Entries are not removed when they lose their point: whoever takes one checks."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._sequence = 0
        self._compact_at = _COMPACT_FROM
        self._now_s = float("-inf")

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Due]:
        """In no particular order. For checks and tests."""
        return (due for _, _, due in self._heap)

    @property
    def next_s(self) -> float | None:
        """The earliest moment, or None."""
        return self._heap[0][0] if self._heap else None

    def add(self, at_s: float, due: Due) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_s, self._sequence, due))

    def add_in(self, seconds: float, due: Due) -> None:
        """So long after the event that is dealt with: the moment that what is due was last asked for."""
        self.add(self._now_s + seconds, due)

    def take_due(self, now: float) -> list[Due]:
        """Remove and return what is due, earliest first."""
        self._now_s = now
        if not self._heap or self._heap[0][0] > now:
            return []
        due: list[Due] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def compact(self, matters: Callable[[float, Due], bool]) -> None:
        """Once there are many, drop those that lost their point.

        Without this a server that answers quickly would carry every deadline for its full length. It is done
        again only when they are four times as many, so its cost per entry stays the same however many there are.
        """
        if len(self._heap) < self._compact_at:
            return
        self._heap = [item for item in self._heap if matters(item[0], item[2])]
        heapq.heapify(self._heap)
        self._compact_at = max(_COMPACT_FROM, 4 * len(self._heap))
