"""The queue against the simplest account of it: a list that is sorted by place."""

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
from moorage.scheduling.queue import Entry, ModelQueue, QueueTotals
from tests.support.scheduling import make_request

AGEING_S = 3.0


class QueueMachine(RuleBasedStateMachine):
    @initialize(max_rows=st.integers(1, 20), max_bytes=st.integers(1, 20))
    def begin(self, max_rows: int, max_bytes: int) -> None:
        self.policy = QueuePolicy(max_rows=max_rows, max_bytes=max_bytes)
        self.queue = ModelQueue("model", self.policy, QueueTotals(10**9, 10**9))
        self.waiting: list[Entry] = []
        self.taken: list[Entry] = []
        self.last_id = 0

    @rule(rows=st.integers(1, 12), size_bytes=st.integers(0, 12), priority=st.integers(1, 4))
    def arrive(self, rows: int, size_bytes: int, priority: int) -> None:
        """Places within a priority only grow; across priorities one may come before those who wait already."""
        self.last_id += 1
        place = self.last_id + priority * AGEING_S + priority / 8
        entry = Entry(make_request(self.last_id, rows=rows, size_bytes=size_bytes), priority=priority, place=place)
        welcome = not self.waiting or (
            self.rows + rows <= self.policy.max_rows and self.size_bytes + size_bytes <= self.policy.max_bytes
        )
        assert (self.queue.refusal(entry.request, 0.0) is None) == welcome
        if welcome:
            self.queue.append(entry)
            self.join(entry)

    def join(self, entry: Entry) -> None:
        self.waiting.append(entry)
        self.waiting.sort(key=lambda entry: entry.place)

    @precondition(lambda self: self.waiting)
    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        for entry in self.waiting[:count]:
            self.queue.remove(entry)
        self.taken += self.waiting[:count]
        del self.waiting[:count]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        entry = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.queue.remove(entry)
        assert entry not in self.queue

    @rule()
    def put_back(self) -> None:
        """Whoever comes back goes to the place that they had, in whatever order they come."""
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
        assert list(self.queue) == self.waiting
        assert len(self.queue) == len(self.waiting)
        assert bool(self.queue) == bool(self.waiting)
        assert self.queue.head is (self.waiting[0] if self.waiting else None)
        assert self.queue.best_priority == min((entry.priority for entry in self.waiting), default=None)
        assert (self.queue.rows, self.queue.size_bytes) == (self.rows, self.size_bytes)
        assert all(entry in self.queue for entry in self.waiting)


def test_queue() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=200, deadline=None))
