"""Requests in pieces: admitted as one, run in their turn, and answered or refused as one."""

from dataclasses import replace

import pytest

from moorage.domain.errors import DeadlineUnmeetable, QueueFull, RateLimited
from moorage.domain.model import BatchingPolicy, ModelSpec, QueuePolicy, RatePolicy
from moorage.scheduling.explain import Verdict
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec

SPLIT = BatchingPolicy(0.0, split_requests=True)


def serving(spec: ModelSpec | None = None, limits: Limits | None = None, capacity_bytes: int = 100) -> Core:
    """A core with one model that is in memory, of 4 rows a run unless told."""
    core = Core(limits or Limits(), cpu=capacity_bytes)
    core.resident(spec or make_spec(batching=SPLIT))
    return core


def is_over(core: Core) -> bool:
    """Whether nothing is left of any request."""
    state = core.scheduler.state
    return not (state.split or state.entries or core.model().queue or core.model().active)


def test_its_pieces_run_one_after_the_other_and_the_last_takes_others_along() -> None:
    core = serving()
    assert core.ask(1, rows=10) == ["execute 1[0:4]"]
    assert core.ask(2) == []
    assert core.model().queue.rows == 7
    assert core.finish(1) == ["succeed 1[0:4]", "execute 1[4:8]"]
    assert core.finish(2) == ["succeed 1[4:8]", "execute 1[8:10] 2"]
    assert core.finish(3) == ["succeed 1[8:10] 2"]
    assert is_over(core)


def test_as_many_rows_as_a_run_may_have_are_left_whole() -> None:
    core = serving()
    assert core.ask(1, rows=4) == ["execute 1"]


def test_all_pieces_wait_at_the_place_of_the_request() -> None:
    core = serving()
    core.ask(1)
    core.ask(2, rows=8, priority=2)
    core.ask(3, priority=2)
    core.now += 1.0
    core.ask(4, priority=1)
    core.ask(5, priority=2)
    assert core.finish(1) == ["succeed 1", "execute 4"]
    assert core.finish(2) == ["succeed 4", "execute 2[0:4]"]
    assert core.finish(3) == ["succeed 2[0:4]", "execute 2[4:8]"]
    assert core.finish(4) == ["succeed 2[4:8]", "execute 3 5"]


def test_a_queue_without_room_for_all_its_rows_refuses_all_of_it() -> None:
    core = serving(make_spec(batching=SPLIT, queue=QueuePolicy(max_rows=10)))
    core.ask(1)
    core.ask(2)
    assert core.ask(3, rows=10) == ["fail 3: QueueFull"]
    (error,) = core.errors()
    assert isinstance(error, QueueFull)
    assert (error.waiting, error.asked, error.limit) == (1, 10, 10)
    assert core.model().queue.rows == 1
    assert core.ask(4, rows=9) == []
    assert core.model().queue.rows == 10


def test_higher_priority_that_needs_the_room_of_one_piece_displaces_the_request() -> None:
    core = serving(make_spec(batching=SPLIT, queue=QueuePolicy(max_rows=10)))
    core.ask(1)
    core.ask(2, rows=10, priority=5)
    assert core.ask(3, rows=1, priority=1) == ["fail 2: QueueFull"]
    assert core.finish(1) == ["succeed 1", "execute 3"]
    assert core.model().queue.rows == 0


def test_what_needs_all_the_room_displaces_a_request_once() -> None:
    core = serving(make_spec(batching=SPLIT, queue=QueuePolicy(max_rows=10, max_bytes=10)))
    core.ask(1)
    core.arrive(make_request(2, rows=10, size_bytes=10, priority=5))
    assert core.arrive(make_request(3, rows=10, size_bytes=10, priority=1)) == ["fail 2: QueueFull"]
    assert core.finish(1) == ["succeed 1", "execute 3[0:4]"]


def test_it_counts_once_for_the_rate_with_all_its_rows() -> None:
    core = Core()
    core.resident(replace(make_spec(batching=SPLIT), rate=RatePolicy(2.0, 10.0)))
    assert core.ask(1, rows=9) == ["execute 1[0:4]"]
    assert core.ask(2, rows=2) == ["fail 2: RateLimited"]
    assert isinstance(core.errors()[0], RateLimited)
    assert core.ask(3) == []


def test_the_first_piece_that_fails_is_the_request_s_error_and_the_others_do_not_run() -> None:
    core = serving()
    core.ask(1, rows=12)
    core.ask(2)
    assert core.finish(1) == ["succeed 1[0:4]", "execute 1[4:8]"]
    assert core.fail(2) == ["fail 1: InferenceFailed", "execute 2"]
    core.finish(3)
    assert is_over(core)


def test_a_piece_at_fault_does_not_fail_those_that_shared_its_run() -> None:
    core = serving()
    core.ask(1, rows=6)
    core.ask(2, rows=2)
    assert core.finish(1) == ["succeed 1[0:4]", "execute 1[4:6] 2"]
    assert core.fail(2) == ["execute 1[4:6]"]
    assert core.fail(3) == ["fail 1: InferenceFailed", "execute 2"]


def test_a_caller_that_goes_takes_all_pieces_along() -> None:
    core = serving()
    core.ask(1, rows=12)
    core.finish(1)
    assert core.cancel(1) == []
    assert core.model().queue.rows == 0
    assert core.finish(2) == ["succeed 1[4:8]"]
    assert is_over(core)
    assert core.cancel(1) == []


def test_a_deadline_that_passes_between_two_pieces_is_told_once() -> None:
    core = serving()
    core.arrive(make_request(1, rows=12, deadline_s=5.0))
    core.finish(1)
    assert core.wait_until(5.0) == ["fail 1: DeadlineExceeded"]
    assert core.finish(2) == ["succeed 1[4:8]"]
    assert is_over(core)


def test_a_deadline_that_all_its_runs_together_would_miss_is_refused_at_once() -> None:
    core = serving()
    for number in range(1, 4):
        core.ask(number, rows=4)
        core.now += 1.0
        core.finish(number)
    assert core.arrive(make_request(4, rows=16, arrived_s=core.now, deadline_s=core.now + 3.5)) == [
        "fail 4: DeadlineUnmeetable"
    ]
    (error,) = core.errors()
    assert isinstance(error, DeadlineUnmeetable)
    assert (error.wait_s, error.run_s) == pytest.approx((3.0, 1.0))
    assert core.arrive(make_request(5, rows=16, arrived_s=core.now, deadline_s=core.now + 4.5)) == ["execute 5[0:4]"]


def test_a_worker_that_dies_under_a_piece_costs_no_other_its_attempts() -> None:
    core = serving(limits=Limits(max_attempts=2))
    core.ask(1, rows=8)
    core.lose()
    core.recover()
    assert core.loaded() == ["execute 1[0:4]"]
    assert core.finish(2) == ["succeed 1[0:4]", "execute 1[4:8]"]


def test_where_a_worker_dies_too_often_under_one_of_two_pieces_both_are_given_up() -> None:
    core = serving(limits=Limits(max_attempts=1))
    core.ask(1)
    core.ask(2, rows=6)
    core.finish(1)
    core.finish(2)
    assert core.lose() == ["fail 2: WorkerLost"]
    assert is_over(core)


def test_the_first_of_stepped_pieces_that_fails_ends_the_others() -> None:
    core = serving(make_spec(batching=SPLIT, max_batch_size=4, steps=2, state=1))
    core.ask(1, rows=2)
    core.ask(2, rows=6)
    run = core.model().run
    assert run is not None
    assert core.step(done=(1,)) == ["succeed 1", "starting 2[0:4]"]
    run = core.model().run
    assert run is not None
    piece_id = run.entries[0].request.request_id
    assert core.step(broken=(piece_id,)) == ["fail 2: InferenceFailed"]
    assert is_over(core)


def test_it_is_explained_by_its_first_run() -> None:
    core = serving(make_spec(batching=SPLIT, per_row=5, weights=10))
    explained = core.explain(rows=40)
    assert (explained.verdict, explained.rows, explained.needed_bytes) == (Verdict.NOW, 40, 20)


def test_callers_in_closed_loops_are_counted_as_callers() -> None:
    """Not as pieces, few of whose runs are followed by an arrival."""
    core = serving()
    for number in range(20):
        core.ask(number, rows=8)
        for run in (2 * number + 1, 2 * number + 2):
            core.now += 0.1
            core.finish(run)
    core.now += 0.1
    core.ask(20, rows=8)
    core.now += 0.1
    core.finish(41)
    assert core.model().company.expected() == 0
    core.now += 0.1
    core.finish(42)
    assert core.model().company.expected() == 1
