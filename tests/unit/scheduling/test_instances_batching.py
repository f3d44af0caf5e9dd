"""What waits for a model with several instances: which of it shares a run, and when it can be answered."""

import pytest

from moorage.domain.errors import DeadlineUnmeetable
from moorage.domain.model import (
    BatchingPolicy,
)
from moorage.scheduling import events
from tests.support.core import Core
from tests.support.instances import with_instances
from tests.support.scheduling import make_request, make_spec

# What shares a run, and what begins beside one.


def batching(instances: int = 2, policy: BatchingPolicy | None = None) -> Core:
    core = Core()
    core.resident(make_spec(instances=instances, max_batch_size=8, batching=policy or BatchingPolicy()))
    return core


def test_what_waits_together_shares_a_run_though_instances_are_free() -> None:
    core = batching()
    assert core.send(events.RequestsArrived(tuple(make_request(number) for number in range(1, 5)))) == [
        "execute 1 2 3 4"
    ]
    assert core.ask(5) == ["execute 5"]
    core.ask(6)
    core.ask(7)
    assert core.finish(1) == ["succeed 1 2 3 4", "execute 6 7"]


def test_what_is_more_than_a_run_goes_on_beside_it() -> None:
    core = batching()
    assert core.send(events.RequestsArrived(tuple(make_request(number, rows=3) for number in range(1, 6)))) == [
        "execute 1 2",
        "execute 3 4",
    ]


def test_a_watermark_counts_for_each_run() -> None:
    core = batching(policy=BatchingPolicy(5.0, low_watermark=3))
    assert core.ask(1, rows=3) == ["execute 1"]
    assert core.ask(2) == []
    assert core.ask(3, rows=2) == ["execute 2 3"]
    core.ask(4)
    core.finish(1)
    assert core.model().runs[0].run_id == 2
    core.now = 5.0
    assert core.send(events.TimeReached()) == ["execute 4"]


def in_a_closed_loop(core: Core, callers: int, *, run_s: float, lag_s: float) -> int:
    """Callers were answered thirty times together, and came back each time; the last run has just ended."""
    for run_id in range(1, 31):
        core.now += lag_s
        first = 1000 * run_id
        requests = (make_request(first + n, arrived_s=core.now, deadline_s=1e6) for n in range(callers))
        core.send(events.RequestsArrived(tuple(requests)))
        core.now += run_s
        core.finish(run_id)
    return 30


def test_callers_who_come_back_together_are_not_torn_apart() -> None:
    core = batching()
    in_a_closed_loop(core, 4, run_s=6.0, lag_s=2.0)
    core.now += 2.0
    assert [core.ask(1), core.ask(2), core.ask(3), core.ask(4)] == [[], [], [], ["execute 1 2 3 4"]]


def test_a_straggler_joins_the_others_again() -> None:
    """It runs beside them for a while; where its run ends while they are waited for, it is waited for as well."""
    core = batching()
    run_id = in_a_closed_loop(core, 6, run_s=6.0, lag_s=2.0)
    core.now += 2.0
    for number in range(1, 6):
        core.ask(number)
    core.now += 1.0
    core.send(events.TimeReached())
    assert [run.rows for run in core.model().runs] == [5]
    core.now += 1.0
    assert core.ask(6) == ["execute 6"]
    core.now += 5.0
    core.finish(run_id + 1)
    core.now += 0.5
    assert core.ask(7) == [], "four others are expected"
    core.finish(run_id + 2)
    core.now += 0.5
    assert [core.ask(number) for number in (8, 9, 10, 11)] == [[], [], [], []]
    assert core.ask(12) == ["execute 7 8 9 10 11 12"]


# Deadlines.


@pytest.mark.parametrize(("within_s", "begins"), [(1.74, False), (1.77, True)])
def test_whichever_instance_is_free_first_counts(within_s: float, begins: bool) -> None:
    core = with_instances(2)
    for number in (1, 2, 3):
        core.ask(100 + number)
        core.now += 1.0
        core.finish(number)
    core.ask(1)
    core.now += 0.25
    core.ask(2)
    request = make_request(3, arrived_s=core.now, deadline_s=core.now + within_s)
    assert core.arrive(request) == ([] if begins else ["fail 3: DeadlineUnmeetable"])


def test_a_run_before_it_may_take_the_other_instance() -> None:
    core = with_instances(2)
    for number in (1, 2, 3):
        core.ask(100 + number)
        core.now += 1.0
        core.finish(number)
    for number in (1, 2, 3, 4):
        core.arrive(make_request(number, arrived_s=core.now, deadline_s=core.now + 2.8))
    assert core.arrive(make_request(5, arrived_s=core.now, deadline_s=core.now + 2.9)) == ["fail 5: DeadlineUnmeetable"]
    (error,) = core.errors()
    assert isinstance(error, DeadlineUnmeetable)
    assert (error.wait_s, error.run_s) == pytest.approx((2.0, 1.0))


def test_a_smaller_request_that_overtakes_one_without_room_takes_the_other_instance() -> None:
    core = Core(cpu=100)
    core.resident(make_spec(weights=40, per_row=10, max_batch_size=4, instances=2))
    assert core.ask(1, rows=3) == ["execute 1"]
    assert core.ask(2, rows=4) == []
    assert core.arrive(make_request(3, arrived_s=core.now, deadline_s=core.now + 9.0)) == ["execute 3"]
