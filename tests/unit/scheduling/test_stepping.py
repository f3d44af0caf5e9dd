"""Stepped requests: they join and leave between steps, and keep their states meanwhile."""

import pytest

from moorage.domain.model import MemoryPolicy, ModelSpec, SharePolicy
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_request, make_spec


def stepped(*, size: int = 4, state: int = 10, per_row: int = 0, fixed: int = 0, limit: int | None = None) -> ModelSpec:
    share = SharePolicy(limit_bytes=limit)
    return make_spec(steps=99, state=state, per_row=per_row, fixed=fixed, max_batch_size=size, weights=10, share=share)


def running(*request_ids: int, spec: ModelSpec | None = None, limits: Limits = UNGUARDED) -> Core:
    """Requests that take their first step together."""
    core = Core(limits)
    core.resident(spec or stepped())
    for request_id in request_ids:
        core.ask(request_id)
        core.now += 0.1
    return core


def test_who_arrives_joins_at_the_next_step_and_who_is_done_leaves() -> None:
    core = Core()
    core.resident(stepped())
    assert [core.ask(1), core.ask(2), core.ask(3)] == [["starting 1"], [], []]
    assert core.step() == ["step 1 starting 2 3"]
    assert core.step(done=(2,)) == ["succeed 2", "step 1 3"]
    assert core.step(done=(1, 3)) == ["succeed 1", "succeed 3"]
    assert core.kinds() == {"weights": 10}


def test_a_step_has_no_more_rows_than_a_batch() -> None:
    core = running(1, 2, 3, 4, spec=stepped(size=2))
    assert core.step() == ["step 1 starting 2"]
    assert core.step() == ["step 1 2"]
    assert core.step(done=(1,)) == ["succeed 1", "step 2 starting 3"]


def test_a_lone_request_may_have_more_rows_than_a_batch() -> None:
    core = Core()
    core.resident(stepped(size=0))
    assert core.ask(1, rows=3) == ["starting 1"]


def test_a_state_is_leased_while_its_request_runs() -> None:
    core = running(1, 2, spec=stepped(per_row=5))
    assert core.kinds() == {"weights": 10, "state": 10, "workspace": 5}
    core.step()
    assert core.kinds() == {"weights": 10, "state": 20, "workspace": 10}
    core.step(done=(1,))
    assert core.kinds() == {"weights": 10, "state": 10, "workspace": 5}


def test_what_a_state_takes_is_learned() -> None:
    core = Core()
    core.resident(stepped(state=0))
    core.ask(1)
    core.step(state=8)
    assert core.kinds() == {"weights": 10, "state": 8}
    core.ask(2)
    core.step(state=11)
    assert core.kinds()["state"] == 11 + 3 + 8


def test_no_more_join_than_there_is_room_for() -> None:
    core = running(1, 2, 3, spec=stepped(state=40))
    assert core.step() == ["step 1 starting 2"]
    assert core.step() == ["step 1 2"]
    assert core.step(done=(1,)) == ["succeed 1", "step 2 starting 3"]


def test_states_and_steps_stay_within_the_models_limit() -> None:
    core = running(1, 2, 3, spec=stepped(state=10, per_row=5, limit=30))
    assert core.step() == ["step 1 starting 2"]
    assert core.step() == ["step 1 2"]


def test_one_that_can_not_begin_beside_what_stays_is_refused() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("pinned", weights=60, share=SharePolicy(pinned=True)))
    core.resident(stepped(state=35))
    assert core.ask(1) == ["fail 1: MemoryExhausted"]


def test_one_beyond_its_models_limit_is_refused() -> None:
    core = Core()
    core.resident(stepped(state=10, limit=9))
    assert core.ask(1) == ["fail 1: ModelTooLarge"]


def test_one_that_outgrows_its_models_limit_is_given_up_and_who_waits_is_refused() -> None:
    core = running(1, 2, spec=stepped(state=0, limit=20, size=1))
    decided = core.step(state=25) + core.dropped(1)
    assert decided == ["fail 1: MemoryExhausted", "drop 1", "fail 2: ModelTooLarge"]
    assert core.kinds() == {"weights": 10}


@pytest.mark.parametrize("way", ["cancel", "expire"])
def test_one_that_leaves_takes_no_further_step(way: str) -> None:
    core = Core(UNGUARDED)
    core.resident(stepped())
    core.arrive(make_request(1, deadline_s=5.0))
    core.ask(2)
    assert core.step() == ["step 1 starting 2"]
    decided = core.cancel(1) if way == "cancel" else core.wait_until(5.0)
    assert decided == ([] if way == "cancel" else ["fail 1: DeadlineExceeded"])
    assert core.step() == ["drop 1", "step 2"]
    assert core.kinds()["state"] == 20
    core.dropped(1)
    assert core.kinds()["state"] == 10


def test_one_that_is_done_with_the_step_it_left_in_is_not_answered() -> None:
    core = running(1)
    core.cancel(1)
    assert core.step(done=(1,)) == []
    assert core.kinds() == {"weights": 10}


def test_the_last_to_leave_has_its_state_dropped_and_lets_the_model_go() -> None:
    core = running(1)
    core.unload()
    core.cancel(1)
    assert core.step() == ["drop 1"]
    assert core.dropped(1) == ["unload model/1 on cpu"]


def test_one_whose_step_came_to_nothing_is_told_alone() -> None:
    core = running(1, 2)
    core.step()
    assert core.step(broken=(1,)) == ["fail 1: InferenceFailed", "step 2"]
    assert core.kinds() == {"weights": 10, "state": 10}


def test_a_failed_step_is_tried_again_one_by_one_from_the_beginning() -> None:
    core = running(1, 2)
    core.step()
    core.step()
    run_id = core.scheduler.state.last_run_id
    assert core.fail(run_id) == ["starting 1"]
    assert core.step() == ["step 1"]
    assert core.step(done=(1,)) == ["succeed 1", "starting 2"]
    assert core.fail(core.scheduler.state.last_run_id) == ["fail 2: InferenceFailed"]
    assert core.kinds() == {"weights": 10}


def test_one_that_is_tried_alone_lets_nobody_join() -> None:
    core = running(1, 2)
    core.step()
    core.fail(core.scheduler.state.last_run_id)
    core.ask(3)
    assert core.step() == ["step 1"]
    assert core.step(done=(1,)) == ["succeed 1", "starting 2"]
    assert core.step(done=(2,)) == ["succeed 2", "starting 3"]


def test_not_even_one_that_is_not_to_be_tried_alone() -> None:
    core = running(1, 2)
    core.step()
    assert core.fail(core.scheduler.state.last_run_id) == ["starting 1"]
    core.cancel(2)
    core.ask(3)
    assert core.step() == ["step 1"]
    assert core.step(done=(1,)) == ["succeed 1", "starting 3"]


def test_one_that_is_to_be_tried_alone_does_not_join_others() -> None:
    core = running(1, 2)
    core.step()
    core.fail(core.scheduler.state.last_run_id)
    assert core.step(done=(1,)) == ["succeed 1", "starting 2"]
    core.ask(3)
    assert core.step(done=(2,)) == ["succeed 2", "starting 3"]


def test_states_go_with_their_worker_and_requests_begin_again() -> None:
    core = running(1, 2)
    core.step()
    assert core.lose() == []
    core.recover()
    assert core.loaded() == ["starting 1"]
    assert core.step(done=(1,)) == ["succeed 1", "starting 2"]


def test_requests_between_steps_are_not_blamed_for_their_workers_end() -> None:
    core = Core(Limits(max_attempts=1))
    core.resident(stepped())
    core.ask(1)
    core.ask(2)
    core.step()
    assert core.lose() == ["fail 1: WorkerLost", "fail 2: WorkerLost"]


def test_states_that_do_not_go_cost_the_worker_its_life() -> None:
    core = running(1)
    core.now = 100.0
    core.cancel(1)
    assert core.step() == ["drop 1"]
    assert core.wait_until(129.9) == []
    assert core.wait_until(130.0) == ["kill cpu"]
    assert core.wait_until(131.0) == []
    assert core.lose() == ["start cpu"]


def test_drops_that_ended_in_time_are_not_chased() -> None:
    core = Core(UNGUARDED)
    core.resident(stepped())
    core.now = 100.0
    for number, now in ((1, 100.0), (2, 120.0)):
        core.now = now
        core.ask(number)
        core.cancel(number)
        assert core.step() == [f"drop {number}"]
        if number == 1:
            core.dropped(1)
    assert core.wait_until(130.0) == []
    core.dropped(2)
    assert core.wait_until(150.0) == []


def test_news_of_states_that_nobody_told_to_go_are_no_news() -> None:
    core = running(1)
    nobody = MODEL._replace(name="nobody")
    assert [core.dropped(1), core.suspended(1)] == [[], []]
    assert [core.dropped(99, key=nobody), core.suspended(99, key=nobody)] == [[], []]
    assert core.step() == ["step 1"]


def test_a_step_that_ended_before_is_no_news() -> None:
    core = running(1)
    run = core.model().run
    assert run is not None
    core.lose()
    core.recover()
    assert core.fail(run.run_id) == []


def test_a_declared_state_is_kept_whatever_is_measured() -> None:
    assert stepped().memory == MemoryPolicy(10, 0, 0, 10)
    core = running(1)
    core.step(state=3)
    assert core.kinds()["state"] == 10


# Rows for those of higher priority.


def test_within_a_model_whoever_has_higher_priority_takes_the_row_of_the_last_of_the_lowest() -> None:
    core = Core(UNGUARDED)
    core.resident(stepped(size=2))
    core.ask(1, priority=4)
    core.now += 0.1
    core.ask(2, priority=4)
    core.step()
    core.ask(3, priority=1)
    assert core.step() == ["drop 2", "step 1 starting 3"]
    core.dropped(2)
    assert core.step(done=(3,)) == ["succeed 3", "step 1 starting 2"]


def test_nobody_gives_way_for_rows_that_are_not_enough() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=0, steps=9, max_batch_size=4))
    core.ask(1, priority=4)
    core.ask(2, priority=2, rows=3)
    core.step()
    assert core.ask(3, priority=3, rows=4) == []
    assert core.step() == ["step 2 1"]
