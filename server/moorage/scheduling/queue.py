"""One model's waiting requests: by priority, then first come, first served, within bounds of rows and bytes."""

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from moorage.domain.errors import QueueFull
from moorage.domain.model import QueuePolicy
from moorage.domain.request import InferenceRequest
from moorage.scheduling.budget import Lease
from moorage.scheduling.drain import Drain


class Leaving(StrEnum):
    """Where a stepped request's state is on its way to: the host, or nowhere."""

    SUSPEND = "suspend"
    DROP = "drop"


@dataclass(slots=True, eq=False)
class Entry:
    """An accepted request on its way.

    priority: its own, or its model's. place: in the order of those who wait; it never changes.
    attempts: workers that died under it. cohort: of a failed run, those who are tried again together, and with nobody
    else; 0 for who may share a run with anybody.
    tried: devices on which it found no memory by itself. made_room: others made way for it once.
    preemptions: how often it gave way. steps: how many it has behind it. kept_bytes: of state after the last one.
    state, host: memory of its state, where it is stepped and has begun. leaving: the state is on its way out; told:
    its worker knows.
    """

    request: InferenceRequest
    priority: int = 3
    place: float = 0.0
    attempts: int = 0
    cohort: int = 0
    tried: tuple[str, ...] = ()
    made_room: bool = False
    preemptions: int = 0
    steps: int = 0
    kept_bytes: int = 0
    state: Lease | None = None
    host: Lease | None = None
    leaving: Leaving | None = None
    told: bool = False


class QueueTotals:
    """What waits in all queues of the server together, and the most that may."""

    __slots__ = ("max_bytes", "max_rows", "rows", "size_bytes")

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.rows = 0
        self.size_bytes = 0


class _Class(OrderedDict[int, Entry]):
    """Those of one priority, by request_id, in the order of their places; rows: of all of them."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0


class ModelQueue:
    """A bounded queue that gives up any of its members at once."""

    def __init__(self, model: str, policy: QueuePolicy, totals: QueueTotals) -> None:
        self._model = model
        self._policy = policy
        self._totals = totals
        self._drain = Drain()
        self._classes: dict[int, _Class] = {}
        self.rows = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._classes.values()))

    def __bool__(self) -> bool:
        return bool(self._classes)

    def __iter__(self) -> Iterator[Entry]:
        """In the order of their places."""
        classes = list(self._classes.values())
        if len(classes) == 1:
            return iter(classes[0].values())
        return heapq.merge(*(entries.values() for entries in classes), key=lambda entry: entry.place)

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
            return self.full(request, now)
        if totals.rows + rows > totals.max_rows or totals.size_bytes + size_bytes > totals.max_bytes:
            return _full("", totals, totals, self._drain, request, now)
        return None

    def full(self, request: InferenceRequest, now: float) -> QueueFull:
        """That it has no room for a request, and when it will."""
        return _full(self._model, self, self._policy, self._drain, request, now)

    def left(self, entries: Sequence[Entry], now: float) -> None:
        """Some that were taken out went into a run."""
        if self._classes:
            rows = 0
            for entry in entries:
                rows += entry.request.rows
            self._drain.left(rows, now)

    @property
    def head(self) -> Entry | None:
        """Who is served next, if anybody waits."""
        if len(self._classes) == 1:
            (entries,) = self._classes.values()
            return next(iter(entries.values()))
        heads = (next(iter(entries.values())) for entries in self._classes.values())
        return min(heads, key=lambda entry: entry.place, default=None)

    @property
    def best_priority(self) -> int | None:
        """The highest priority (the lowest number) that waits."""
        return min(self._classes, default=None)

    def append(self, entry: Entry) -> None:
        """Join behind those of the same priority."""
        entries = self._class_of(entry)
        entries[entry.request.request_id] = entry
        entries.rows += entry.request.rows
        self._count(entry, 1)

    def put_back(self, entries: list[Entry]) -> None:
        """Return accepted entries to their places. They were admitted once: no bound applies."""
        for entry in entries:
            self.append(entry)
        for priority in {entry.priority for entry in entries}:
            for entry in sorted(self._classes[priority].values(), key=_order):
                self._classes[priority].move_to_end(entry.request.request_id)

    def _class_of(self, entry: Entry) -> _Class:
        entries = self._classes.get(entry.priority)
        if entries is None:
            entries = self._classes[entry.priority] = _Class()
        return entries

    def rows_before(self, priority: int) -> int:
        """Rows of those who wait at a priority or a higher one."""
        if len(self._classes) == 1:
            (waiting,) = self._classes
            return self.rows if waiting <= priority else 0
        return sum(entries.rows for waiting, entries in self._classes.items() if waiting <= priority)

    def displaced_by(self, request: InferenceRequest, priority: int) -> list[Entry]:
        """Who would have to leave so that a request of higher priority finds room; empty where that is not enough.

        The last of the lowest priority first, and nobody who has work behind them.
        """
        rows = self.rows + request.rows - self._policy.max_rows
        size_bytes = self.size_bytes + request.size_bytes - self._policy.max_bytes
        leaving: list[Entry] = []
        for waiting in sorted(self._classes, reverse=True):
            if waiting <= priority:
                break
            for entry in reversed(self._classes[waiting].values()):
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
        del entries[entry.request.request_id]
        entries.rows -= entry.request.rows
        if not entries:
            del self._classes[entry.priority]
        self._count(entry, -1)
        if self._drain.is_known and not self._classes:
            self._drain.emptied()

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
            assert entries.rows == sum(entry.request.rows for entry in entries.values())


class _Waiting(Protocol):
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
    """That what waits leaves no room for a request, and when it will, as fast as the model's queue drains now."""
    excess_rows = waiting.rows + request.rows - bounds.max_rows
    excess_bytes = waiting.size_bytes + request.size_bytes - bounds.max_bytes
    if excess_rows > 0:
        retry_after_s = drain.wait_s(min(excess_rows, waiting.rows), now)
        figures = ("rows", waiting.rows, request.rows, bounds.max_rows)
    else:
        bytes_per_row = waiting.size_bytes / waiting.rows
        retry_after_s = drain.wait_s(min(excess_bytes, waiting.size_bytes) / max(1.0, bytes_per_row), now)
        figures = ("bytes", waiting.size_bytes, request.size_bytes, bounds.max_bytes)
    unit, now_waiting, asked, limit = figures
    return QueueFull(model, unit=unit, waiting=now_waiting, asked=asked, limit=limit, retry_after_s=retry_after_s)


def _order(entry: Entry) -> tuple[float, int]:
    return entry.place, entry.request.request_id
