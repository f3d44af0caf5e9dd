import pytest

from moorage.domain.model import QueuePolicy
from moorage.scheduling.queue import Entry, ModelQueue
from tests.support.scheduling import make_request


def entry(request_id: int, rows: int = 1, size_bytes: int = 1) -> Entry:
    return Entry(make_request(request_id, rows=rows, size_bytes=size_bytes))


def ids(queue: ModelQueue) -> list[int]:
    return [each.request.request_id for each in queue]


def queue_of(*entries: Entry, max_rows: int = 10, max_bytes: int = 10) -> ModelQueue:
    queue = ModelQueue("m", QueuePolicy(max_rows=max_rows, max_bytes=max_bytes))
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


def test_what_is_put_back_comes_first_in_its_order() -> None:
    queue = queue_of(entry(3))
    queue.put_back([entry(1), entry(2)])
    assert ids(queue) == [1, 2, 3]
    queue.check_integrity()


def test_an_empty_queue_has_no_head() -> None:
    assert queue_of().head is None


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
    error = queue.refusal(make_request(2, rows=rows, size_bytes=size_bytes))
    assert (error and error.unit) == refused_for
