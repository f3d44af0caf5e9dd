"""A run that goes on when nobody waits for it any more is ended with its worker, `hang_timeout_s` later: 30 s here."""

from moorage.domain.model import BatchingPolicy
from tests.support.core import Core
from tests.support.instances import with_instances
from tests.support.scheduling import make_request, make_spec


def test_a_run_that_outlives_its_requests_costs_the_worker_its_life() -> None:
    core = Core()
    core.resident()
    core.arrive(make_request(1, deadline_s=5.0))
    assert core.wait_until(6.0) == ["fail 1: DeadlineExceeded"]
    assert core.wait_until(34.0) == []
    assert core.wait_until(36.0) == ["kill cpu"]
    assert core.lose() == ["start cpu"]


def test_so_it_is_where_the_callers_leave_long_before_their_deadlines() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8))
    for number in (1, 2, 3):
        core.arrive(make_request(number, deadline_s=3600.0))
    core.finish(1)
    core.now = 1.0
    core.cancel(2)
    core.now = 50.0
    assert core.wait_until(50.0) == [], "somebody still waits for it"
    core.cancel(3)
    assert core.wait_until(79.0) == []
    assert core.wait_until(80.0) == ["kill cpu"]
    assert core.wait_until(3700.0) == [], "once is enough"
    assert core.lose() == ["start cpu"]


def test_a_step_that_nobody_waits_for_is_not_waited_for_either() -> None:
    core = Core()
    core.resident(make_spec(steps=9, state=1))
    core.arrive(make_request(1, deadline_s=3600.0))
    core.cancel(1)
    assert core.wait_until(30.0) == ["kill cpu"]


def test_pieces_that_go_with_their_request_leave_no_run_behind() -> None:
    core = Core()
    core.resident(make_spec(batching=BatchingPolicy(split_requests=True), instances=2, max_batch_size=1))
    core.ask(1, rows=2)
    assert core.fail(1) == ["fail 1: InferenceFailed"]
    assert core.wait_until(30.0) == ["kill cpu"]


def test_each_run_of_a_model_has_its_own_time() -> None:
    core = with_instances(2)
    core.ask(1)
    core.ask(2)
    core.cancel(1)
    core.now = 10.0
    core.cancel(2)
    core.finish(1)
    assert core.wait_until(39.0) == []
    assert core.wait_until(40.0) == ["kill cpu"]


def test_a_run_that_ended_in_time_is_not_chased() -> None:
    core = Core()
    core.resident()
    core.arrive(make_request(1, deadline_s=5.0))
    core.cancel(1)
    core.finish(1)
    assert core.wait_until(100.0) == []
