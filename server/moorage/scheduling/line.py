"""Who waits for something of a device, in the order of their places."""

import heapq
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")


class Line(Generic[Waiter]):
    """Waiters by place, the lowest first; among equals, who came first. Anybody may leave at any time.

    Joining, leaving and looking at the first cost O(log n): an entry that was overtaken by a newer one for the
    same waiter stays in the heap until it comes up.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Waiter]] = []
        self._entries: dict[Waiter, tuple[float, int, Waiter]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, waiter: Waiter) -> bool:
        return waiter in self._entries

    def __iter__(self) -> Iterator[Waiter]:
        """In order. Sorts: for views and tests."""
        return iter([waiter for _, _, waiter in sorted(self._entries.values(), key=lambda entry: entry[:2])])

    def waiters(self) -> Iterable[Waiter]:
        """In no particular order. Not to be changed meanwhile."""
        return self._entries

    def place_of(self, waiter: Waiter) -> float:
        """Raises KeyError if they do not wait."""
        return self._entries[waiter][0]

    def put(self, waiter: Waiter, place: float) -> None:
        """Join, or move to another place. Whoever stays at theirs keeps their turn."""
        before = self._entries.get(waiter)
        if before is not None and before[0] == place:
            return
        self._sequence += 1
        entry = self._entries[waiter] = (place, self._sequence, waiter)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 64 + 4 * len(self._entries):
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def set(self, waiter: Waiter, place: float | None) -> bool:
        """Put a waiter at a place, or, where there is none, out of the line; whether anything changed."""
        before = self._entries.get(waiter)
        if place is None:
            if before is not None:
                del self._entries[waiter]
            return before is not None
        if before is not None and before[0] == place:
            return False
        self.put(waiter, place)
        return True

    def drop(self, waiter: Waiter) -> None:
        """Leave; nothing happens where they do not wait."""
        self._entries.pop(waiter, None)

    @property
    def first_place(self) -> float | None:
        """The place of whoever is first, if anybody is."""
        heap = self._heap
        while heap and self._entries.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    @property
    def first(self) -> Waiter | None:
        """Who is first, if anybody is."""
        return self._heap[0][2] if self.first_place is not None else None

    def take(self) -> tuple[float, int, Waiter]:
        """Remove and return the first, with what `put_back` needs. Raises IndexError where nobody waits."""
        if self.first_place is None:
            raise IndexError("nobody waits")
        entry = heapq.heappop(self._heap)
        del self._entries[entry[2]]
        return entry

    def put_back(self, entry: tuple[float, int, Waiter]) -> None:
        """Return somebody who was taken, and has not joined anew meanwhile, to exactly the turn that they had."""
        if entry[2] not in self._entries:
            self._entries[entry[2]] = entry
            heapq.heappush(self._heap, entry)
