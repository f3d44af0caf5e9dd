"""The queue against the simplest account of it: a list in turn for each priority, and its places."""

import math
from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from moorage.domain.model import QueuePolicy
from moorage.scheduling.entries import Entry
from moorage.scheduling.queue import ModelQueue, QueueTotals
from tests.support.scheduling import make_request

AGEING_S = 3.0


class QueueMachine(RuleBasedStateMachine):
    @initialize(max_rows=st.integers(1, 20), max_bytes=st.integers(1, 20))
    def begin(self, max_rows: int, max_bytes: int) -> None:
        self.policy = QueuePolicy(max_rows=max_rows, max_bytes=max_bytes)
        self.queue = ModelQueue("model", self.policy, QueueTotals(10**9, 10**9))
        self.classes: dict[int, list[Entry]] = defaultdict(list)
        self.places: dict[int, list[float]] = defaultdict(list)
        self.came_at: dict[int, float] = {}
        self.taken: list[Entry] = []
        self.last_id = 0

    @rule(
        rows=st.integers(1, 12), size_bytes=st.integers(0, 12), priority=st.integers(1, 4), timeout_s=st.integers(0, 9)
    )
    def arrive(self, rows: int, size_bytes: int, priority: int, timeout_s: int) -> None:
        """Places within a priority only grow; across priorities one may come before those who wait already."""
        self.last_id += 1
        place = self.last_id + priority * AGEING_S + priority / 8
        deadline_s = float(self.last_id + timeout_s)
        request = make_request(self.last_id, rows=rows, size_bytes=size_bytes, deadline_s=deadline_s)
        entry = Entry(request, priority=priority, place=place)
        before = sum(it.request.rows for it in self.waiting if it.priority < priority)
        before += sum(it.request.rows for it in self.classes[priority] if self.turn(it)[0] <= deadline_s)
        assert self.queue.rows_before(priority, deadline_s) == before
        welcome = not self.waiting or (
            self.rows + rows <= self.policy.max_rows and self.size_bytes + size_bytes <= self.policy.max_bytes
        )
        assert (self.queue.refusal(entry.request, 0.0) is None) == welcome
        if welcome:
            overtakes = self.queue.append(entry)
            self.join(entry)
            assert overtakes or entry is self.classes[priority][-1]

    def join(self, entry: Entry) -> None:
        self.came_at[entry.request.request_id] = entry.place
        self.classes[entry.priority].append(entry)
        self.classes[entry.priority].sort(key=self.turn)
        self.places[entry.priority] = sorted([*self.places[entry.priority], entry.place])

    def turn(self, entry: Entry) -> tuple[float, float]:
        due_s = -math.inf if entry.has_begun else entry.request.deadline_s
        return due_s, self.came_at[entry.request.request_id]

    def part(self, entry: Entry) -> None:
        index = self.classes[entry.priority].index(entry)
        place = self.places[entry.priority].pop(index)
        del self.classes[entry.priority][index]
        self.queue.remove(entry)
        assert entry.place == place

    @property
    def placed(self) -> list[tuple[float, Entry]]:
        classes = [zip(self.places[it], self.classes[it], strict=True) for it in self.classes]
        return sorted((item for each in classes for item in each), key=lambda item: item[0])

    @property
    def waiting(self) -> list[Entry]:
        return [entry for _, entry in self.placed]

    @precondition(lambda self: self.waiting)
    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        for entry in self.waiting[:count]:
            self.part(entry)
            self.taken.append(entry)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.waiting))
        self.part(entry)
        assert entry not in self.queue

    @rule(attempts=st.integers(0, 1))
    def put_back(self, attempts: int) -> None:
        """Whoever comes back goes to the place that they had, in whatever order they come."""
        for entry in self.taken:
            entry.attempts += attempts
        self.queue.put_back(self.taken[::-1])
        for entry in self.taken:
            self.join(entry)
        self.taken = []

    @property
    def rows(self) -> int:
        return sum(entry.request.rows for entry in self.waiting)

    @property
    def size_bytes(self) -> int:
        return sum(entry.request.size_bytes for entry in self.waiting)

    @invariant()
    def agrees(self) -> None:
        self.queue.check_integrity()
        waiting = self.waiting
        assert list(self.queue) == waiting
        assert [(self.queue.place_of(entry), entry) for entry in waiting] == self.placed
        assert len(self.queue) == len(waiting)
        assert bool(self.queue) == bool(waiting)
        assert self.queue.head is (waiting[0] if waiting else None)
        assert self.queue.best_priority == min((entry.priority for entry in waiting), default=None)
        assert (self.queue.rows, self.queue.size_bytes) == (self.rows, self.size_bytes)
        assert all(entry in self.queue for entry in waiting)


def test_queue() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=200, deadline=None))
