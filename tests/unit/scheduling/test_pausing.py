"""Decoupled requests: what each step answers is handed on, once; and whose caller does not read takes no steps."""

import pytest

from moorage.domain.errors import DeadlineExceeded, ModelNotReady
from moorage.domain.model import ModelSpec, Preemption, PreemptionPolicy, SharePolicy
from moorage.scheduling import events
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import BY_STEPS, make_request, make_spec

DEVICE = DeviceLimits(100, host_bytes=200, run_slots=8)


def decoupled(
    *, size: int = 4, state: int = 10, preemption: PreemptionPolicy = BY_STEPS, limit: int | None = None
) -> ModelSpec:
    return make_spec(
        steps=99,
        state=state,
        max_batch_size=size,
        weights=10,
        decoupled=True,
        preemption=preemption,
        share=SharePolicy(limit_bytes=limit),
    )


def running(*request_ids: int, spec: ModelSpec | None = None, steps: int = 1) -> Core:
    """Requests that have taken so many steps together, and are in the next."""
    core = Core.on(DEVICE)
    core.resident(spec or decoupled())
    for request_id in request_ids:
        core.ask(request_id)
    for _ in range(steps + (len(request_ids) > 1)):
        core.step(seconds=1.0)
    return core


def test_each_step_hands_on_what_it_answered_before_the_next_begins() -> None:
    core = running(1, 2)
    assert core.step() == ["emit 1", "emit 2", "step 1 2"]
    assert core.step(done=(1,)) == ["succeed 1", "emit 2", "step 2"]


def test_nothing_is_handed_on_to_a_caller_who_has_gone() -> None:
    core = running(1, 2)
    core.cancel(1)
    assert core.step()[0] == "emit 2"


def test_what_begins_again_hands_on_only_what_is_new() -> None:
    core = running(1, steps=3)
    core.lose()
    core.recover()
    assert core.loaded() == ["starting 1"]
    assert [core.step(), core.step(), core.step()] == [["step 1"]] * 3
    assert core.step() == ["emit 1", "step 1"]


def test_one_whose_state_could_not_be_moved_begins_again_likewise() -> None:
    core = running(1, steps=3)
    other = core.register(make_spec("other", weights=85, share=SharePolicy(priority=1)))
    core.load(other)
    assert core.step() == ["emit 1", "suspend 1"]
    assert core.dropped(1) == [f"load {other} on cpu"]
    core.loaded(other, weights_bytes=85)
    core.now += 100.0
    assert core.pause(1) == []
    assert core.resume(1) == [f"unload {other} on cpu"]
    assert core.unloaded(other) == ["starting 1"]
    assert [core.step() for _ in range(4)] == [["step 1"]] * 4
    assert core.step() == ["emit 1", "step 1"]


def test_who_is_paused_takes_no_step_and_the_others_go_on() -> None:
    core = running(1, 2, 3)
    assert core.pause(2) == []
    assert core.step() == ["emit 1", "emit 2", "emit 3", "step 1 3"], "what was under way is handed on"
    assert core.kinds() == {"weights": 10, "state": 30}, "it stays where it is"
    assert core.resume(2) == []
    assert core.step() == ["emit 1", "emit 3", "step 1 2 3"]


def test_where_all_are_paused_nothing_runs_until_one_is_resumed() -> None:
    core = running(1, 2)
    core.pause(1)
    core.pause(2)
    assert core.step() == ["emit 1", "emit 2"]
    assert core.resume(2) == ["step 2"]
    assert core.pause(7) == core.resume(7) == core.resume(2) == [], "nobody, and one that is not paused"


def test_a_newcomer_runs_beside_paused_ones() -> None:
    core = running(1, spec=decoupled(size=1))
    core.pause(1)
    assert core.step() == ["emit 1"]
    assert core.ask(2) == ["starting 2"]
    assert core.resume(1) == []
    assert core.step(done=(2,)) == ["succeed 2", "step 1"]


def test_who_waits_may_be_paused_too() -> None:
    core = running(1, spec=decoupled(size=1))
    core.ask(2)
    core.pause(2)
    assert core.step(done=(1,)) == ["succeed 1"]
    assert core.model().queue.rows == 0
    assert core.resume(2) == ["starting 2"]


def test_memory_of_a_paused_one_is_there_for_anybody() -> None:
    """Even for lower priority, and however often it gave way before."""
    never_again = PreemptionPolicy(Preemption.STEP, max_preemptions=0)
    core = running(1, steps=50, spec=decoupled(state=80, preemption=never_again))
    core.pause(1)
    core.step()
    other = core.register(make_spec("other", weights=20, share=SharePolicy(priority=5)))
    assert core.load(other) == ["suspend 1"]
    assert core.suspended(1) == [f"load {other} on cpu"]
    assert core.model().counts.preemptions == 0, "its own caller made it"
    assert core.model().parked.keys() == {1}
    core.loaded(other, weights_bytes=20)
    core.now += 100.0
    assert core.resume(1) == [f"unload {other} on cpu"]
    assert core.unloaded(other) == ["resuming 1"]


def test_one_whose_model_never_gives_way_stays() -> None:
    core = running(1, steps=50, spec=decoupled(state=80, preemption=PreemptionPolicy(Preemption.NEVER)))
    core.pause(1)
    core.step()
    assert core.hold(9, 20, priority=1) == []
    assert core.resume(1) == ["step 1"]


def test_of_its_models_own_limit_a_paused_one_holds_no_part() -> None:
    core = running(1, 2, steps=50, spec=decoupled(state=25, limit=60))
    core.pause(1)
    core.step(done=(2,))
    core.ask(3)
    core.ask(4)
    assert core.step() == ["emit 3", "step 3"]
    assert core.step() == ["emit 3", "suspend 1", "step 3"]
    assert core.suspended(1) == []
    assert core.step() == ["emit 3", "step 3 starting 4"]


def parked(*, deadline_s: float = 1e6) -> Core:
    """Request 1 is paused, and its state is on the host."""
    core = Core.on(DEVICE)
    core.resident(decoupled(state=60))
    core.arrive(make_request(1, deadline_s=deadline_s))
    for _ in range(50):
        core.step(seconds=1.0)
    core.pause(1)
    core.step()
    core.hold(9, 60)
    core.suspended(1)
    core.let_go(9)
    assert core.model().parked.keys() == {1}
    assert core.host_bytes() == 60
    return core


def test_a_parked_one_comes_back_with_what_it_has() -> None:
    core = parked()
    assert core.resume(1) == ["resuming 1"]
    assert core.step()[0] == "emit 1"


def test_a_parked_one_may_be_cancelled() -> None:
    core = parked()
    assert core.cancel(1) == ["drop 1"]
    core.dropped(1)
    assert core.host_bytes() == 0


def test_a_parked_one_expires_and_is_told_why() -> None:
    core = parked(deadline_s=100.0)
    assert core.wait_until(101.0) == ["fail 1: DeadlineExceeded", "drop 1"]
    (error,) = core.errors()
    assert isinstance(error, DeadlineExceeded)
    assert "while its caller took no answers" in error.message


def test_a_parked_one_begins_again_where_its_worker_dies() -> None:
    core = parked()
    core.lose()
    assert core.host_bytes() == 0
    core.recover()
    assert core.loaded() == []
    assert core.resume(1) == ["starting 1"]


def test_a_model_with_a_parked_one_can_be_put_out_and_comes_back_for_it() -> None:
    core = parked()
    other = core.register(make_spec("other", weights=95))
    core.now += 100.0
    assert core.load(other) == ["unload model/1 on cpu"]
    core.unloaded()
    assert core.host_bytes() == 0
    core.loaded(other, weights_bytes=95)
    core.now += 100.0
    assert core.resume(1) == [f"unload {other} on cpu"]


def test_a_closing_model_waits_for_a_parked_one() -> None:
    core = parked()
    assert core.unload() == []
    assert core.cancel(1) == ["drop 1"]
    assert core.dropped(1) == ["unload model/1 on cpu"]


def test_a_model_that_was_put_out_and_closes_does_not_come_back_for_a_parked_one() -> None:
    core = parked()
    other = core.register(make_spec("other", weights=95))
    core.now += 100.0
    core.load(other)
    core.unloaded()
    assert core.unload() == ["fail 1: ModelNotReady", "unloaded model/1"]
    assert isinstance(core.errors()[0], ModelNotReady)


def test_only_want_of_memory_puts_out_a_paused_one() -> None:
    core = running(1, spec=decoupled(size=4))
    core.pause(1)
    core.step()
    assert core.ask(2, rows=3) == ["starting 2"]
    core.ask(3, rows=2)
    assert core.step() == ["emit 2", "step 2"], "no rows are left, but memory is"
    assert core.model().active[1].leaving is None


def test_one_that_had_to_go_comes_back_to_its_place() -> None:
    """Though others that came later have nearer deadlines, and it begins again."""
    core = running(1, steps=2, spec=decoupled(size=1, state=60))
    core.pause(1)
    core.step()
    core.hold(9, 60)
    core.dropped(1)
    core.let_go(9)
    core.arrive(make_request(2, arrived_s=core.now, deadline_s=core.now + 10.0))
    core.arrive(make_request(3, arrived_s=core.now, deadline_s=core.now + 10.0))
    assert core.resume(1) == []
    assert core.step(done=(2,)) == ["succeed 2", "starting 1"]


@pytest.mark.parametrize("where", ["parked", "active"])
def test_a_closing_model_waits_for_who_does_not_read_but_not_for_ever(where: str) -> None:
    core = parked() if where == "parked" else running(1)
    core.pause(1)
    if where == "active":
        core.step()
    assert core.unload() == []
    failed = core.wait_until(core.now + 5.0)
    assert failed == ["fail 1: ModelNotReady", "drop 1"]
    assert core.dropped(1) == ["unload model/1 on cpu"]


def test_a_server_that_stops_waits_for_who_does_not_read_but_not_for_ever() -> None:
    core = running(1, 2, 3)
    core.pause(1)
    core.step()
    core.send(events.DrainStarted())
    core.pause(2)
    core.now += 1.0
    core.pause(3)
    core.resume(2)
    core.step()
    assert core.wait_until(core.now + 4.0)[:1] == ["fail 1: ServerDraining"]
    assert core.wait_until(core.now + 1.0) == ["fail 3: ServerDraining"]
    assert 2 in core.model().active


def test_who_is_resumed_takes_no_part_in_the_step_of_one_that_is_tried_alone() -> None:
    core = running(1, 2, 3)
    core.pause(1)
    core.step()
    assert core.fail(core.model().runs[0].run_id) == ["starting 2"]
    assert core.model().active[2].cohort
    core.resume(1)
    assert core.step() == ["step 2"]
    assert core.step(done=(2,))[:1] == ["succeed 2"]


def test_a_step_that_hangs_under_who_does_not_read_ends_all_the_same() -> None:
    core = running(1)
    core.pause(1)
    core.unload()
    assert core.wait_until(core.now + 5.0) == ["fail 1: ModelNotReady"]
    assert core.wait_until(core.now + core.scheduler.state.limits.hang_timeout_s)[0] == "kill cpu"
