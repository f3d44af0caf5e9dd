from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.errors import QueueFull
from moorage.domain.model import BatchingPolicy, QueuePolicy
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec


def serving(queue: QueuePolicy, *, split: bool = False) -> Core:
    """One model, whose only run is taken."""
    core = Core()
    core.resident(make_spec(max_batch_size=4, batching=BatchingPolicy(split_requests=split), queue=queue))
    core.ask(1)
    return core


def told(core: Core) -> list[tuple[str, int, int, int]]:
    """What the callers that left by the latest event were told."""
    errors = [error for error in core.errors() if isinstance(error, QueueFull)]
    assert len(errors) == len(core.errors())
    return [(error.unit, error.waiting, error.asked, error.limit) for error in errors]


def test_each_of_several_is_told_of_the_rows_that_took_their_place() -> None:
    core = serving(QueuePolicy(max_rows=4))
    for number in (2, 3, 4, 5):
        core.ask(number, priority=4)
    assert core.ask(6, rows=3, priority=1) == ["fail 5: QueueFull", "fail 4: QueueFull", "fail 3: QueueFull"]
    assert told(core) == [("rows", 4, 1, 4)] * 3
    assert core.model().queue.rows == 4


def test_the_bound_of_all_queues_holds_though_lower_priority_leaves() -> None:
    core = Core(Limits(max_waiting_rows=4))
    core.resident(make_spec(max_batch_size=4, queue=QueuePolicy(max_rows=4)))
    other = core.resident(make_spec("other", max_batch_size=4))
    core.ask(1)
    core.ask(2, rows=1, model=other)
    for number in (3, 4, 5):
        core.ask(number, model=other)
    assert core.scheduler.state.waiting.rows == 3
    core.ask(6, priority=5)
    assert core.ask(7, rows=4, priority=1) == ["fail 7: QueueFull"]
    assert core.ask(8, priority=1) == ["fail 6: QueueFull"]
    assert core.scheduler.state.waiting.rows == 4
    assert core.ask(9, priority=1) == ["fail 9: QueueFull"]


def test_where_bytes_lack_longer_than_rows_they_are_told() -> None:
    core = serving(QueuePolicy(max_rows=3, max_bytes=40))
    for number in (2, 3, 4):
        core.arrive(make_request(number, size_bytes=10))
    core.arrive(make_request(5, size_bytes=40))
    assert told(core) == [("bytes", 30, 40, 40)]


def test_who_left_a_queue_that_was_not_full_yet_is_told_rows_too() -> None:
    core = serving(QueuePolicy(max_rows=4))
    core.ask(2, rows=3, priority=4)
    assert core.ask(3, rows=2, priority=1) == ["fail 2: QueueFull"]
    assert told(core) == [("rows", 2, 3, 4)]


def test_where_bytes_are_what_is_short_they_are_told() -> None:
    core = serving(QueuePolicy(max_rows=100, max_bytes=40))
    for number in (2, 3):
        core.arrive(make_request(number, size_bytes=20, priority=4))
    core.arrive(make_request(4, size_bytes=25, priority=1))
    assert told(core) == [("bytes", 25, 20, 40)] * 2


def test_who_would_find_room_since_somebody_larger_left_too_is_told_why_there_was_none() -> None:
    core = serving(QueuePolicy(max_rows=4))
    core.ask(2, rows=3, priority=4)
    core.ask(3, priority=5)
    assert core.ask(4, rows=2, priority=1) == ["fail 3: QueueFull", "fail 2: QueueFull"]
    assert told(core) == [("rows", 4, 2, 4), ("rows", 2, 3, 4)]


def test_the_caller_of_pieces_is_told_of_the_whole_request() -> None:
    core = serving(QueuePolicy(max_rows=10), split=True)
    core.ask(2, rows=9, priority=5)
    core.ask(3, priority=4)
    assert core.ask(4, rows=1, priority=1) == ["fail 2: QueueFull"]
    assert told(core) == [("rows", 2, 9, 10)]


def test_all_are_told_how_fast_it_drained_though_it_is_empty_when_the_last_has_left() -> None:
    core = serving(QueuePolicy(max_rows=8))
    for number in range(2, 10):
        core.ask(number, priority=4)
    core.now += 0.1
    core.finish(1)
    for number in range(10, 14):
        core.ask(number, priority=4)
    core.now += 0.1
    core.finish(2)
    assert core.ask(20, rows=8, priority=1) == [f"fail {number}: QueueFull" for number in (13, 12, 11, 10)]
    assert {round(error.retry_after_s or 0.0, 9) for error in core.errors()} == {0.025}


@given(
    waiting=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(2, 5)), min_size=1, max_size=8),
    newcomer=st.tuples(st.integers(1, 12), st.integers(0, 12)),
    split=st.booleans(),
)
def test_what_anybody_is_told_exceeds_the_bound_that_is_named(
    waiting: list[tuple[int, int, int]], newcomer: tuple[int, int], split: bool
) -> None:
    core = serving(QueuePolicy(max_rows=12, max_bytes=12), split=split)
    for number, (rows, size_bytes, priority) in enumerate(waiting, 2):
        core.arrive(make_request(number, rows=rows, size_bytes=rows * size_bytes, priority=priority))
    core.arrive(make_request(90, rows=newcomer[0], size_bytes=newcomer[0] * newcomer[1], priority=1))
    for unit, rows, asked, limit in told(core):
        assert unit in {"rows", "bytes"}
        assert limit == 12
        assert rows + asked > limit
