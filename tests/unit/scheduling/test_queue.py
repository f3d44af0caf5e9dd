import pytest

from moorage.domain.model import QueuePolicy
from moorage.scheduling.entries import Entry
from moorage.scheduling.queue import ModelQueue, QueueTotals
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec


def entry(request_id: int, rows: int = 1, size_bytes: int = 1, *, priority: int = 3, place: float = 0.0) -> Entry:
    return Entry(make_request(request_id, rows=rows, size_bytes=size_bytes), priority=priority, place=place)


def ids(queue: ModelQueue) -> list[int]:
    return [each.request.request_id for each in queue]


def queue_of(*entries: Entry, max_rows: int = 10, max_bytes: int = 10) -> ModelQueue:
    queue = ModelQueue("m", QueuePolicy(max_rows=max_rows, max_bytes=max_bytes), QueueTotals(1000, 1000))
    for each in entries:
        queue.append(each)
    return queue


def test_first_come_first_served_and_anyone_may_leave() -> None:
    first, second, third = entry(1), entry(2, rows=3, size_bytes=4), entry(3)
    queue = queue_of(first, second, third)
    queue.remove(second)
    assert second not in queue
    assert first in queue
    assert (ids(queue), queue.rows, queue.size_bytes, len(queue), queue.head) == ([1, 3], 2, 2, 2, first)
    queue.check_integrity()
    with pytest.raises(KeyError):
        queue.remove(second)


def test_what_is_put_back_goes_to_its_place() -> None:
    queue = queue_of(entry(2, place=2.0), entry(4, place=4.0))
    queue.put_back([entry(1, place=1.0), entry(3, place=3.0)])
    assert ids(queue) == [1, 2, 3, 4]
    queue.check_integrity()


def test_places_are_kept_across_priorities() -> None:
    low = [entry(1, priority=4, place=41.0), entry(2, priority=4, place=42.0)]
    high, aged = entry(3, priority=1, place=13.0), entry(4, priority=2, place=41.5)
    queue = queue_of(*low, high, aged)
    assert ids(queue) == [3, 1, 4, 2]
    assert (queue.head, queue.best_priority, len(queue)) == (high, 1, 4)
    queue.remove(high)
    assert (queue.head, queue.best_priority) == (low[0], 2)
    queue.put_back([high])
    assert ids(queue) == [3, 1, 4, 2]
    queue.check_integrity()


def due(request_id: int, deadline_s: float, *, priority: int = 3, place: float | None = None, rows: int = 1) -> Entry:
    place = request_id if place is None else place
    return Entry(make_request(request_id, rows=rows, deadline_s=deadline_s), priority=priority, place=place)


def test_the_earliest_deadline_goes_first_at_the_earliest_place() -> None:
    queue = queue_of(due(1, 30.0), due(2, 20.0), due(3, 20.0), due(4, 10.0, rows=5))
    assert ids(queue) == [4, 2, 3, 1]
    assert [queue.place_of(each) for each in queue] == [1.0, 2.0, 3.0, 4.0]
    first = queue.head
    assert first is not None
    queue.remove(first)
    assert first.place == 1.0
    assert [(each.request.request_id, queue.place_of(each)) for each in queue] == [(2, 2.0), (3, 3.0), (1, 4.0)]
    queue.check_integrity()


def test_a_deadline_is_of_no_weight_among_priorities() -> None:
    queue = queue_of(due(1, 90.0, priority=1), due(2, 50.0, priority=2), due(3, 10.0, priority=2, place=0.5))
    assert ids(queue) == [3, 1, 2]
    assert queue.append(due(4, 5.0, priority=2, place=4.0))
    assert ids(queue) == [4, 1, 3, 2]
    assert [queue.place_of(each) for each in queue] == [0.5, 1.0, 2.0, 4.0]
    assert not queue.append(due(5, 60.0, priority=2))
    assert ids(queue) == [4, 1, 3, 2, 5]


def test_who_was_in_a_run_goes_before_any_deadline() -> None:
    begun = due(1, 90.0)
    queue = queue_of(begun, due(2, 50.0))
    assert ids(queue) == [2, 1]
    queue.remove(begun)
    assert begun.place == 2.0
    begun.attempts = 1
    queue.put_back([begun])
    assert ids(queue) == [1, 2]
    assert [queue.place_of(each) for each in queue] == [1.0, 2.0]
    queue.check_integrity()


def test_whoever_leaves_takes_the_place_along_that_they_had() -> None:
    overtaken, last = due(1, 30.0), due(2, 10.0)
    queue = queue_of(overtaken, last)
    queue.remove(overtaken)
    assert (overtaken.place, queue.place_of(last)) == (2.0, 1.0)


def test_rows_before_a_deadline() -> None:
    queue = queue_of(due(1, 30.0, rows=1), due(2, 10.0, rows=2), due(3, 90.0, rows=4, priority=2))
    assert [queue.rows_before(3, deadline_s) for deadline_s in (5.0, 10.0, 29.0, 30.0, 31.0)] == [4, 6, 6, 7, 7]
    assert queue.rows_before(2, 5.0) == 0


def test_deadlines_do_not_count_where_they_are_not_to() -> None:
    queue = ModelQueue("m", QueuePolicy(), QueueTotals(1000, 1000), by_deadline=False)
    begun = due(3, 1.0, place=0.5)
    begun.attempts = 1
    assert not queue.append(due(1, 30.0))
    assert not queue.append(due(2, 20.0))
    queue.put_back([begun])
    assert ids(queue) == [3, 1, 2]
    assert queue.rows_before(3, 0.0) == 3


def test_an_empty_queue_has_no_head() -> None:
    queue = queue_of()
    assert (queue.head, queue.best_priority, list(queue), bool(queue)) == (None, None, [], False)


@pytest.mark.parametrize(
    ("waiting", "rows", "size_bytes", "refused_for"),
    [
        (entry(1, rows=8), 2, 1, None),
        (entry(1, rows=8), 3, 1, "rows"),
        (entry(1, size_bytes=8), 1, 2, None),
        (entry(1, size_bytes=8), 1, 3, "bytes"),
        (None, 99, 99, None),
    ],
)
def test_bounds(waiting: Entry | None, rows: int, size_bytes: int, refused_for: str | None) -> None:
    queue = queue_of(*([waiting] if waiting else []))
    error = queue.refusal(make_request(2, rows=rows, size_bytes=size_bytes), 0.0)
    assert (error and error.unit) == refused_for


def test_rows_before_are_those_of_the_same_priority_or_a_higher_one() -> None:
    queue = queue_of(entry(1, rows=2, priority=2), entry(2, rows=3, priority=4))
    assert [queue.rows_before(priority, 1000.0) for priority in (1, 2, 3, 4, 5)] == [0, 2, 2, 5, 5]
    queue.remove(next(iter(queue)))
    assert [queue.rows_before(priority, 1000.0) for priority in (1, 3, 4)] == [0, 0, 3]


def test_the_last_of_the_lowest_priority_leave_for_a_higher_one() -> None:
    waiting = [entry(1, rows=3, priority=4), entry(2, rows=3, priority=5), entry(3, rows=3, priority=5)]
    queue = queue_of(*waiting, max_rows=9)
    assert queue.displaced_by(make_request(4, rows=1), priority=3) == [waiting[2]]
    assert queue.displaced_by(make_request(4, rows=5), priority=3) == [waiting[2], waiting[1]]
    assert queue.displaced_by(make_request(4, rows=5), priority=4) == [waiting[2], waiting[1]]
    assert queue.displaced_by(make_request(4, rows=7), priority=4) == []
    assert queue.displaced_by(make_request(4, rows=1), priority=5) == []
    waiting[2].steps = 1
    assert queue.displaced_by(make_request(4, rows=1), priority=3) == [waiting[1]]


def test_who_is_displaced_is_told_that_the_queue_is_full() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=1, queue=QueuePolicy(max_rows=2)))
    for number in (1, 2, 3):
        core.ask(number, priority=5)
    assert core.ask(4, priority=5) == ["fail 4: QueueFull"]
    assert core.ask(5, priority=1) == ["fail 3: QueueFull"]
    assert core.finish(1) == ["succeed 1", "execute 5"]
