"""Who waits for one model at one priority: the earliest deadline goes first, at the earliest of their places."""

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable

from moorage.scheduling.entries import Entry

_Turn = tuple[float, float, int]


class WaitingClass(OrderedDict[int, Entry]):
    """By request_id. Earliest deadline first, and first come among equals; who was in a run before goes before them.

    What a model may claim of its device goes by its places. These are the ones at which its requests came in, whoever
    of them has the turn: the first takes the first place, and so on. So no deadline of one model's requests is of
    weight for another model, and nobody who is overtaken holds a place for those who overtake them.

    As long as everybody joins behind the others, as they do where all have the same time, the order in which they came
    is all that is kept. From the first on who goes before somebody, and until the class is empty, everybody costs
    a search and a move within arrays.

    rows: of all of them. order: all in turn, once somebody overtook; None as long as that is the order they came in.
    """

    __slots__ = ("_by_deadline", "_latest_place", "_latest_s", "_places", "_rows", "_turns", "order", "rows")

    # Of everybody, once somebody overtook: their turns, and in turn their rows, and the places.
    _turns: dict[int, _Turn]
    _rows: list[int]
    _places: list[float]

    def __init__(self, *, by_deadline: bool) -> None:
        super().__init__()
        self._by_deadline = by_deadline
        self._latest_place = self._latest_s = -math.inf
        self.order: list[tuple[_Turn, Entry]] | None = None
        self.rows = 0

    def in_turn(self) -> Iterable[Entry]:
        """Not to be changed meanwhile."""
        return self.values() if self.order is None else [entry for _, entry in self.order]

    def placed(self) -> Iterable[tuple[float, Entry]]:
        """In turn, everybody with the place that they have. Not to be changed meanwhile."""
        if self.order is None:
            return ((entry.place, entry) for entry in self.values())
        return zip(self._places, self.in_turn(), strict=True)

    @property
    def first(self) -> Entry:
        """Whose turn it is. Raises StopIteration where nobody waits."""
        return next(iter(self.values())) if self.order is None else self.order[0][1]

    @property
    def first_place(self) -> float:
        """The best place, which is theirs. Raises as `first`."""
        return self.first.place if self.order is None else self._places[0]

    def place_of(self, entry: Entry) -> float:
        """The place that somebody who waits here has now."""
        return entry.place if self.order is None else self._places[self._index(entry)]

    def rows_before(self, deadline_s: float) -> int:
        """Rows of those who would have their turn before somebody who came now."""
        if not self._by_deadline or deadline_s >= self._latest_s:
            return self.rows
        count = bisect_left(self._ordered(), ((deadline_s, math.inf, 0),))
        return sum(self._rows[:count])

    def join(self, entry: Entry) -> bool:
        """Wait for the first run, having just arrived; whether somebody was overtaken."""
        request, place = entry.request, entry.place
        due_s = request.deadline_s if self._by_deadline else 0.0
        overtakes = due_s < self._latest_s or place < self._latest_place
        if overtakes or self.order is not None:
            self._insert(entry, due_s)
        if not overtakes:
            self._latest_s, self._latest_place = due_s, place
        self[request.request_id] = entry
        self.rows += request.rows
        return overtakes

    def rejoin(self, entry: Entry) -> None:
        """Wait again, at the place that it had."""
        due_s = entry.request.deadline_s
        if not self._by_deadline:
            due_s = 0.0
        elif entry.has_begun:
            due_s = -math.inf
        self._insert(entry, due_s)
        self._latest_s, self._latest_place = max(self._latest_s, due_s), max(self._latest_place, entry.place)
        self[entry.request.request_id] = entry
        self.rows += entry.request.rows

    def leave(self, entry: Entry) -> None:
        """Wait no longer. Raises KeyError if it does not wait here."""
        request = entry.request
        del self[request.request_id]
        self.rows -= request.rows
        if self.order is not None:
            index = self._index(entry)
            del self._turns[request.request_id], self.order[index], self._rows[index]
            entry.place = self._places.pop(index)

    def end(self) -> None:
        """Nobody waits: who comes next overtakes nobody."""
        self._latest_place = self._latest_s = -math.inf
        self.order = None

    def _index(self, entry: Entry) -> int:
        return bisect_left(self._ordered(), (self._turns[entry.request.request_id],))

    def _insert(self, entry: Entry, due_s: float) -> None:
        order = self._ordered()
        turn = (due_s, entry.place, entry.request.request_id)
        index = bisect_left(order, (turn,))
        self._turns[entry.request.request_id] = turn
        order.insert(index, (turn, entry))
        self._rows.insert(index, entry.request.rows)
        insort(self._places, entry.place)

    def _ordered(self) -> list[tuple[_Turn, Entry]]:
        """Everybody in turn; up to now it was the order in which they came."""
        if self.order is None:
            by_deadline = self._by_deadline
            self._turns = {
                key: (entry.request.deadline_s if by_deadline else 0.0, entry.place, key) for key, entry in self.items()
            }
            self.order = list(zip(self._turns.values(), self.values(), strict=True))
            self._rows = [entry.request.rows for entry in self.values()]
            self._places = [entry.place for entry in self.values()]
        return self.order

    def check_integrity(self) -> None:
        """Raises AssertionError where what is kept of those who wait differs from them."""
        entries = list(self.in_turn())
        assert self.rows == sum(entry.request.rows for entry in entries)
        assert {entry.request.request_id: entry for entry in entries} == dict(self)
        if self.order is None:
            return
        assert self.order == sorted(self.order, key=lambda item: item[0])
        assert self._rows == [entry.request.rows for entry in entries]
        assert self._places == sorted(self._places)
        assert len(self._places) == len(self._turns) == len(entries)
