"""One model's waiting requests: first come, first served, within bounds of rows and bytes."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from moorage.domain.errors import QueueFull
from moorage.domain.model import QueuePolicy
from moorage.domain.request import InferenceRequest

# Told to a refused caller until the drain rate is measured.
RETRY_AFTER_S = 1.0


@dataclass(slots=True, eq=False)
class Entry:
    """An accepted request on its way.

    attempts: workers that died under it. alone: its batch failed, so it is tried by itself.
    """

    request: InferenceRequest
    attempts: int = 0
    alone: bool = False


class ModelQueue:
    """A bounded queue that gives up any of its members at once."""

    def __init__(self, model: str, policy: QueuePolicy) -> None:
        self._model = model
        self._policy = policy
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self.rows = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __contains__(self, entry: Entry) -> bool:
        return entry.request.request_id in self._entries

    def refusal(self, request: InferenceRequest) -> QueueFull | None:
        """Why the queue can't take this request now, if it can't. An empty queue takes any single request."""
        if not self._entries:
            return None
        policy = self._policy
        if self.rows + request.rows > policy.max_rows:
            return self._full("rows", self.rows, request.rows, policy.max_rows)
        if self.size_bytes + request.size_bytes > policy.max_bytes:
            return self._full("bytes", self.size_bytes, request.size_bytes, policy.max_bytes)
        return None

    def _full(self, unit: str, waiting: int, asked: int, limit: int) -> QueueFull:
        return QueueFull(self._model, unit=unit, waiting=waiting, asked=asked, limit=limit, retry_after_s=RETRY_AFTER_S)

    @property
    def head(self) -> Entry | None:
        """Who is served next, if anybody waits."""
        return next(iter(self._entries.values()), None)

    def append(self, entry: Entry) -> None:
        self._entries[entry.request.request_id] = entry
        self._count(entry, 1)

    def put_back(self, entries: list[Entry]) -> None:
        """Return accepted entries to the head, in their order. They were admitted once: no bound applies."""
        for entry in reversed(entries):
            self.append(entry)
            self._entries.move_to_end(entry.request.request_id, last=False)

    def remove(self, entry: Entry) -> None:
        """Take one entry out. Raises KeyError if it does not wait here."""
        del self._entries[entry.request.request_id]
        self._count(entry, -1)

    def _count(self, entry: Entry, sign: int) -> None:
        self.rows += sign * entry.request.rows
        self.size_bytes += sign * entry.request.size_bytes

    def check_integrity(self) -> None:
        """Raises AssertionError where the running sums differ from what waits."""
        assert self.rows == sum(entry.request.rows for entry in self)
        assert self.size_bytes == sum(entry.request.size_bytes for entry in self)
