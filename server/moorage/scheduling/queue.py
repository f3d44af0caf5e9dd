"""One model's waiting requests: by priority, then the earliest deadline first, within bounds of rows and bytes."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple, Protocol

from moorage.domain.errors import QueueFull
from moorage.domain.model import QueuePolicy
from moorage.domain.request import InferenceRequest
from moorage.scheduling.drain import Drain
from moorage.scheduling.entries import Entry
from moorage.scheduling.waiting import WaitingClass


class QueueTotals:
    """What waits in all queues of the server together, the most that may, and how fast it gets less."""

    __slots__ = ("drain", "max_bytes", "max_rows", "rows", "size_bytes")

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.drain = Drain()
        self.rows = 0
        self.size_bytes = 0


class ModelQueue:
    """A bounded queue that gives up any of its members at once."""

    def __init__(self, model: str, policy: QueuePolicy, totals: QueueTotals, *, by_deadline: bool = True) -> None:
        self._model = model
        self._by_deadline = by_deadline
        self._policy = policy
        self._totals = totals
        self._drain = Drain()
        self._classes: dict[int, WaitingClass] = {}
        # One that is empty, for the next who comes: most of the time nobody waits for long.
        self._spare: WaitingClass | None = None
        self.rows = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._classes.values()))

    def __bool__(self) -> bool:
        return bool(self._classes)

    def __iter__(self) -> Iterator[Entry]:
        """In turn: in the order of the places that they have."""
        if len(self._classes) == 1:
            (entries,) = self._classes.values()
            return iter(entries.values() if entries.order is None else entries.in_turn())
        placed = heapq.merge(*(entries.placed() for entries in self._classes.values()), key=itemgetter(0))
        return (entry for _, entry in placed)

    def __contains__(self, entry: Entry) -> bool:
        return entry.request.request_id in self._classes.get(entry.priority, ())

    def refusal(self, request: InferenceRequest, now: float) -> QueueFull | None:
        """Why the queue can't take this request now, if it can't. An empty queue takes any single request, as far as
        the server's other queues leave room for it."""
        totals, policy = self._totals, self._policy
        if not totals.rows:
            return None
        rows, size_bytes = request.rows, request.size_bytes
        if self._classes and (self.rows + rows > policy.max_rows or self.size_bytes + size_bytes > policy.max_bytes):
            return _full(self._model, self, policy, self._drain, request, now)
        if totals.rows + rows > totals.max_rows or totals.size_bytes + size_bytes > totals.max_bytes:
            return _full("", totals, totals, totals.drain, request, now)
        return None

    def full_for_displaced(
        self, request: InferenceRequest, newcomer: InferenceRequest, gone: Iterable[Entry], now: float
    ) -> QueueFull | None:
        """That it has no room for a request once the newcomer is in and those others are gone; None if it has."""
        rows, size_bytes = self.rows + newcomer.rows, self.size_bytes + newcomer.size_bytes
        for entry in gone:
            rows -= entry.request.rows
            size_bytes -= entry.request.size_bytes
        if rows + request.rows <= self._policy.max_rows and size_bytes + request.size_bytes <= self._policy.max_bytes:
            return None
        return _full(self._model, _Amount(rows, size_bytes), self._policy, self._drain, request, now)

    def left(self, entries: Sequence[Entry], now: float) -> None:
        """Some that were taken out went into a run."""
        totals = self._totals
        if totals.rows:
            rows = 0
            for entry in entries:
                rows += entry.request.rows
            totals.drain.left(rows, now)
            if self._classes:
                self._drain.left(rows, now)

    @property
    def head(self) -> Entry | None:
        """Who is served next, if anybody waits."""
        if len(self._classes) == 1:
            (entries,) = self._classes.values()
            return next(iter(entries.values())) if entries.order is None else entries.first
        first = min(self._classes.values(), key=attrgetter("first_place"), default=None)
        return None if first is None else first.first

    def place_of(self, entry: Entry) -> float:
        """The place that somebody who waits has now."""
        entries = self._classes[entry.priority]
        return entry.place if entries.order is None else entries.place_of(entry)

    @property
    def best_priority(self) -> int | None:
        """The highest priority (the lowest number) that waits."""
        return min(self._classes, default=None)

    def append(self, entry: Entry) -> bool:
        """Join those of the same priority; whether some of them come later now than they did."""
        self._count(entry, 1)
        return self._class_of(entry).join(entry)

    def put_back(self, entries: list[Entry]) -> None:
        """Return accepted entries to their places. They were admitted once: no bound applies."""
        for entry in entries:
            self._count(entry, 1)
            self._class_of(entry).rejoin(entry)

    def _class_of(self, entry: Entry) -> WaitingClass:
        entries = self._classes.get(entry.priority)
        if entries is None:
            entries, self._spare = (
                self._spare if self._spare is not None else WaitingClass(by_deadline=self._by_deadline),
                None,
            )
            self._classes[entry.priority] = entries
        return entries

    def rows_before(self, priority: int, deadline_s: float) -> int:
        """Rows of those who would have their turn before a request that came now: of a higher priority, and of the same
        with an earlier deadline."""
        rows = 0
        for waiting, entries in self._classes.items():
            if waiting < priority:
                rows += entries.rows
            elif waiting == priority:
                rows += entries.rows_before(deadline_s)
        return rows

    def displaced_by(self, request: InferenceRequest, priority: int) -> list[Entry]:
        """Who would have to leave so that a request of higher priority finds room; empty where that is not enough.

        The last of the lowest priority first, and nobody who has work behind them, nor of another model.
        """
        totals, policy = self._totals, self._policy
        rows = request.rows + max(self.rows - policy.max_rows, totals.rows - totals.max_rows)
        size_bytes = request.size_bytes + max(self.size_bytes - policy.max_bytes, totals.size_bytes - totals.max_bytes)
        leaving: list[Entry] = []
        for waiting in sorted(self._classes, reverse=True):
            if waiting <= priority:
                break
            for entry in reversed(list(self._classes[waiting].in_turn())):
                if rows <= 0 and size_bytes <= 0:
                    return leaving
                if entry.steps == 0 and entry.attempts == 0:
                    leaving.append(entry)
                    rows -= entry.request.rows
                    size_bytes -= entry.request.size_bytes
        return leaving if rows <= 0 and size_bytes <= 0 else []

    def remove(self, entry: Entry) -> None:
        """Take one entry out. Raises KeyError if it does not wait here."""
        entries = self._classes[entry.priority]
        entries.leave(entry)
        if not entries:
            del self._classes[entry.priority]
            entries.end()
            self._spare = entries
        self._count(entry, -1)
        if not self._classes:
            if self._drain.is_known:
                self._drain.emptied()
            totals = self._totals
            if not totals.rows and totals.drain.is_known:
                totals.drain.emptied()

    def _count(self, entry: Entry, sign: int) -> None:
        rows, size_bytes = sign * entry.request.rows, sign * entry.request.size_bytes
        self.rows += rows
        self.size_bytes += size_bytes
        totals = self._totals
        totals.rows += rows
        totals.size_bytes += size_bytes

    def check_integrity(self) -> None:
        """Raises AssertionError where the running sums differ from what waits."""
        assert self.rows == sum(entry.request.rows for entry in self)
        assert self.size_bytes == sum(entry.request.size_bytes for entry in self)
        for entries in self._classes.values():
            entries.check_integrity()


class _Waiting(Protocol):
    @property
    def rows(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


class _Amount(NamedTuple):
    rows: int
    size_bytes: int


class _Bounds(Protocol):
    @property
    def max_rows(self) -> int: ...

    @property
    def max_bytes(self) -> int: ...


def _full(
    model: str, waiting: _Waiting, bounds: _Bounds, drain: Drain, request: InferenceRequest, now: float
) -> QueueFull:
    """That what waits leaves no room for a request, and when it will, as fast as it drains now."""
    excess_rows = min(waiting.rows + request.rows - bounds.max_rows, waiting.rows)
    excess_bytes = min(waiting.size_bytes + request.size_bytes - bounds.max_bytes, waiting.size_bytes)
    # As many rows as have to leave for the bytes, too; the bound that lacks more of them is told.
    rows_for_bytes = excess_bytes / max(1.0, waiting.size_bytes / waiting.rows)
    retry_after_s = drain.wait_s(max(excess_rows, rows_for_bytes), now)
    if excess_rows > 0 and excess_rows >= rows_for_bytes:
        figures = ("rows", waiting.rows, request.rows, bounds.max_rows)
    else:
        figures = ("bytes", waiting.size_bytes, request.size_bytes, bounds.max_bytes)
    unit, now_waiting, asked, limit = figures
    return QueueFull(model, unit=unit, waiting=now_waiting, asked=asked, limit=limit, retry_after_s=retry_after_s)
