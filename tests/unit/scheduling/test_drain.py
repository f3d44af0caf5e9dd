import pytest

from moorage.domain.model import ModelKey, QueuePolicy
from moorage.scheduling.drain import DEPARTURES, UNKNOWN_S, Drain
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.scheduling import MODEL, make_request, make_spec


def drained(rows: int, every_s: float, times: int) -> Drain:
    drain = Drain()
    for number in range(times):
        drain.left(rows, number * every_s)
    return drain


def test_nothing_is_known_before_the_second_departure() -> None:
    assert drained(8, 1.0, 1).rows_per_s(5.0) is None
    assert drained(8, 1.0, 1).wait_s(1, 5.0) == UNKNOWN_S


@pytest.mark.parametrize("times", [2, DEPARTURES, DEPARTURES + 1, 3 * DEPARTURES + 7])
def test_the_rate_is_that_of_the_latest_departures(times: int) -> None:
    drain = drained(8, 0.5, times)
    now = 0.5 * (times - 1)
    assert drain.rows_per_s(now) == pytest.approx(16.0)
    assert drain.wait_s(4, now) == pytest.approx(0.25)


def test_it_falls_while_nothing_leaves_and_the_wait_stays_bounded() -> None:
    drain = drained(8, 0.5, 3)
    assert drain.rows_per_s(10.0) == pytest.approx(1.6)
    assert drain.wait_s(1e9, 10.0) == 60.0
    assert drain.wait_s(0, 10.0) == 0.001


def test_with_the_queue_empty_the_past_is_forgotten() -> None:
    drain = drained(8, 0.5, 3)
    drain.emptied()
    assert drain.rows_per_s(10.0) is None


def full(core: Core, request_id: int, rows: int = 1, size_bytes: int = 1, model: ModelKey = MODEL) -> float | None:
    """Seconds after which a refused caller is to try again."""
    core.arrive(make_request(request_id, model=model, rows=rows, size_bytes=size_bytes))
    return core.errors()[0].retry_after_s


def test_who_is_refused_is_told_when_there_will_be_room() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=2, queue=QueuePolicy(max_rows=8)))
    for number in range(1, 10):
        core.ask(number)
    for run_id in (1, 2):
        core.now += 0.1
        core.finish(run_id)
    for number in range(10, 14):
        core.ask(number)
    core.now += 0.1
    assert full(core, 90) == pytest.approx(0.1)
    assert full(core, 91, rows=4) == pytest.approx(0.4)


def test_all_queues_together_have_a_bound_too() -> None:
    core = Core(Limits(max_waiting_rows=4, max_waiting_bytes=100))
    first, second = core.resident(make_spec("first")), core.resident(make_spec("second"))
    core.ask(1, first)
    core.ask(2, second)
    for number in (3, 4, 5):
        core.ask(number, first)
    assert core.arrive(make_request(6, model=second, rows=2)) == ["fail 6: QueueFull"]
    assert core.arrive(make_request(7, model=second, size_bytes=98)) == ["fail 7: QueueFull"]
    assert core.ask(8, second) == []
    assert core.arrive(make_request(9, model=second)) == ["fail 9: QueueFull"]
    assert core.finish(1) == ["succeed 1", "execute 3 4 5"]
    assert core.ask(10, second) == []


def test_at_the_bound_of_all_queues_everybody_is_told_how_fast_all_of_them_empty() -> None:
    core = Core(Limits(max_waiting_rows=12, max_waiting_bytes=1000))
    names = ("flooding", "other", "quiet")
    flooding, other, quiet = (core.resident(make_spec(name, max_batch_size=2)) for name in names)
    for number, model in enumerate((flooding, other, quiet), 1):
        core.ask(number, model)
    for number in range(4, 10):
        core.ask(number, flooding)
        core.ask(number + 10, other)
    for model in (flooding, flooding, other, flooding):
        core.now += 0.1
        run = core.model(model).run
        assert run is not None
        core.finish(run.run_id)
    for number in range(30, 38):
        core.ask(number, flooding)
    rows_per_s = 6 / 0.3
    for number, model in enumerate((flooding, other, quiet), 90):
        assert full(core, number, rows=2, model=model) == pytest.approx(2 / rows_per_s)


def test_what_goes_from_one_queue_while_another_is_full_counts_until_all_are_empty() -> None:
    core = Core(Limits(max_waiting_rows=2, max_waiting_bytes=1000))
    first, second = core.resident(make_spec("first", max_batch_size=1)), core.resident(make_spec("second"))
    for number, model in enumerate((first, second, first, second), 1):
        core.ask(number, model)
    assert full(core, 90, model=first) == UNKNOWN_S
    core.now += 0.1
    core.finish(2)
    core.ask(5, second)
    core.now += 0.1
    core.finish(3)
    core.ask(6, second)
    assert full(core, 91, model=first) == pytest.approx(0.1)
    for request_id in (3, 6):
        core.cancel(request_id)
    core.ask(7, first)
    core.ask(8, second)
    assert full(core, 92, model=first) == UNKNOWN_S
