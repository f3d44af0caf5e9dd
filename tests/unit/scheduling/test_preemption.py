"""Work that gives way to work of higher priority, and comes back."""

import pytest

from moorage.domain.errors import Preempted
from moorage.domain.model import ModelKey, ModelSpec, Preemption, PreemptionPolicy, SharePolicy
from moorage.scheduling import events
from moorage.scheduling.policy import FIFO, MOORAGE, Policy
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import BY_STEPS, UNGUARDED, make_request, make_spec

LOW, HIGH = ModelKey("low", 1), ModelKey("high", 1)


def stepped(name: str, *, priority: int, policy: PreemptionPolicy = BY_STEPS, size: int = 4) -> ModelSpec:
    share = SharePolicy(priority=priority, pinned=True)
    return make_spec(name, weights=10, state=30, steps=99, max_batch_size=size, share=share, preemption=policy)


def two(
    *, host_bytes: int = 100, policy: PreemptionPolicy = BY_STEPS, slots: int = 8, by: Policy = MOORAGE, state: int = 50
) -> Core:
    """A stepped model of low priority and another model, both in memory; 30 of 100 bytes are free for one state."""
    core = Core.on(DeviceLimits(100, host_bytes=host_bytes, run_slots=slots), UNGUARDED, by)
    core.resident(stepped("low", priority=4, policy=policy))
    core.resident(make_spec("high", weights=10, fixed=state, share=SharePolicy(priority=1, pinned=True)))
    return core


def step_low(core: Core, times: int, *, seconds: float = 1.0) -> None:
    for _ in range(times):
        core.step(LOW, seconds=seconds)


def test_a_running_request_gives_way_at_its_next_step() -> None:
    core = two()
    core.ask(1, LOW)
    core.ask(2, LOW)
    step_low(core, 2)
    assert core.kinds() == {"weights": 20, "state": 60}
    assert core.ask(3, HIGH) == []
    assert core.step(LOW, seconds=1.0) == ["suspend 2", "step 1"]
    assert core.suspended(2, key=LOW) == ["execute 3"]
    assert core.kinds() == {"weights": 20, "state": 30, "workspace": 50}
    assert core.host_bytes() == 30


@pytest.mark.parametrize(
    ("steps", "seconds", "host_bytes", "decided"),
    [(2, 1.0, 100, "suspend 2"), (2, 0.0, 100, "drop 2"), (2, 1.0, 29, "drop 2")],
)
def test_a_state_goes_to_the_host_unless_its_steps_cost_less_or_there_is_no_room(
    steps: int, seconds: float, host_bytes: int, decided: str
) -> None:
    core = two(host_bytes=host_bytes)
    core.ask(1, LOW)
    core.ask(2, LOW)
    step_low(core, steps, seconds=seconds)
    core.ask(3, HIGH)
    assert core.step(LOW, seconds=seconds)[0] == decided


def preempted(*, host_bytes: int = 100, policy: PreemptionPolicy = BY_STEPS) -> Core:
    """Request 2 of two has given way to request 3, which runs; request 1 goes on."""
    core = two(host_bytes=host_bytes, policy=policy)
    core.ask(1, LOW)
    core.now += 0.1
    core.ask(2, LOW)
    step_low(core, 2)
    core.ask(3, HIGH)
    core.step(LOW, seconds=1.0)
    leave = core.suspended if host_bytes >= 30 else core.dropped
    assert leave(2, key=LOW) == ["execute 3"]
    return core


def test_it_comes_back_from_the_host_before_those_who_came_later() -> None:
    core = preempted()
    core.ask(4, LOW)
    core.finish(core.scheduler.state.last_run_id)
    assert core.step(LOW) == ["step 1 resuming 2"]
    assert core.host_bytes() == 30
    assert core.step(LOW, done=(1,)) == ["succeed 1", "step 2 starting 4"]
    assert core.host_bytes() == 0


def test_it_begins_again_where_its_state_was_dropped() -> None:
    core = preempted(host_bytes=0)
    core.finish(core.scheduler.state.last_run_id)
    assert core.step(LOW) == ["step 1 starting 2"]


def test_what_it_keeps_is_measured_anew_when_it_begins_again() -> None:
    core = two(host_bytes=0, state=60)
    core.ask(1, LOW)
    core.ask(2, HIGH)
    assert core.step(LOW) == ["drop 1"]
    assert core.dropped(1, key=LOW) == ["execute 2"]
    assert core.finish(core.scheduler.state.last_run_id) == ["succeed 2", "starting 1"]
    core.step(LOW, state=35)
    measured = core.model(LOW).measured
    assert (measured.state_bytes, measured.state_growth_bytes) == (35, 0)


def test_who_is_cancelled_while_suspended_has_its_copy_on_the_host_dropped() -> None:
    core = preempted()
    assert core.cancel(2) == []
    assert core.step(LOW) == ["drop 2", "step 1"]
    assert core.host_bytes() == 30
    core.dropped(2, key=LOW)
    assert core.host_bytes() == 0


def test_who_is_cancelled_on_its_way_to_the_host_is_dropped_when_it_is_there() -> None:
    core = two()
    core.ask(1, LOW)
    core.ask(2, LOW)
    step_low(core, 2)
    core.ask(3, HIGH)
    assert core.step(LOW, seconds=1.0) == ["suspend 2", "step 1"]
    core.cancel(2)
    assert core.suspended(2, key=LOW) == ["execute 3"]
    assert core.step(LOW) == ["drop 2", "step 1"]
    core.dropped(2, key=LOW)
    assert core.host_bytes() == 0


def test_one_whose_deadline_comes_before_it_could_go_on_is_told_why() -> None:
    core = two()
    core.ask(1, LOW)
    core.arrive(make_request(2, model=LOW, arrived_s=0.5, deadline_s=9.0))
    step_low(core, 2)
    core.ask(3, HIGH)
    core.step(LOW, seconds=1.0)
    core.suspended(2, key=LOW)
    assert core.wait_until(9.0) == ["fail 2: Preempted"]
    error = core.errors()[0]
    assert isinstance(error, Preempted)
    assert (error.waited_s, error.times) == (8.5, 1)


def test_one_whose_deadline_comes_when_it_runs_again_was_simply_too_late() -> None:
    core = two()
    core.ask(1, LOW)
    core.arrive(make_request(2, model=LOW, arrived_s=0.5, deadline_s=9.0))
    step_low(core, 2)
    core.ask(3, HIGH)
    core.step(LOW, seconds=1.0)
    core.suspended(2, key=LOW)
    core.finish(core.scheduler.state.last_run_id)
    assert core.step(LOW) == ["step 1 resuming 2"]
    assert core.wait_until(9.0) == ["fail 2: DeadlineExceeded"]
    assert str(core.errors()[0]) == "deadline exceeded after 8.500 s, while it was computed"


def test_one_whose_deadline_comes_while_it_leaves_is_told_why() -> None:
    core = two()
    core.ask(1, LOW)
    core.arrive(make_request(2, model=LOW, arrived_s=0.5, deadline_s=9.0))
    step_low(core, 2)
    core.ask(3, HIGH)
    assert core.step(LOW, seconds=1.0) == ["suspend 2", "step 1"]
    assert core.wait_until(9.0) == ["fail 2: Preempted"]


@pytest.mark.parametrize("policy", [PreemptionPolicy(Preemption.NEVER), PreemptionPolicy(max_preemptions=0)])
def test_one_that_is_to_be_left_alone_is_waited_for(policy: PreemptionPolicy) -> None:
    core = two(policy=policy)
    core.ask(1, LOW)
    core.ask(2, LOW)
    step_low(core, 2)
    core.ask(3, HIGH)
    assert core.step(LOW) == ["step 1 2"]
    assert core.step(LOW, done=(2,)) == ["succeed 2", "execute 3", "step 1"]


def test_one_that_gave_way_often_enough_is_left_alone() -> None:
    core = preempted(policy=PreemptionPolicy(max_preemptions=1))
    core.finish(core.scheduler.state.last_run_id)
    core.step(LOW)
    core.step(LOW)
    core.ask(4, HIGH)
    assert core.step(LOW, seconds=1.0) == ["suspend 1", "step 2"]
    assert core.suspended(1, key=LOW) == ["execute 4"]
    core.ask(5, HIGH)
    assert core.model(LOW).counts.preemptions == 2


def test_nobody_gives_way_to_equal_priority() -> None:
    core = two()
    core.ask(1, LOW)
    core.ask(2, LOW)
    step_low(core, 2)
    core.ask(3, HIGH, priority=4)
    assert core.step(LOW) == ["step 1 2"]


def test_without_preemption_in_the_policy_nobody_gives_way() -> None:
    core = two(by=FIFO)
    core.ask(1, LOW)
    core.ask(2, LOW)
    step_low(core, 2)
    core.ask(3, HIGH)
    assert core.step(LOW) == ["step 1 2"]


def test_a_step_of_lower_priority_is_waited_for_and_takes_no_new_one() -> None:
    core = Core.on(DeviceLimits(100, run_slots=8), UNGUARDED)
    core.resident(make_spec("low", weights=0, fixed=50, steps=9, share=SharePolicy(priority=4)))
    core.resident(make_spec("high", weights=0, fixed=60, share=SharePolicy(priority=1)))
    core.ask(1, LOW)
    assert core.ask(2, HIGH) == []
    assert core.step(LOW) == ["execute 2"]
    assert core.finish(core.scheduler.state.last_run_id) == ["succeed 2", "step 1"]


def test_a_step_of_equal_priority_is_waited_for_like_any_run() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("low", weights=0, fixed=50, steps=9))
    core.resident(make_spec("high", weights=0, fixed=60))
    core.ask(1, LOW)
    core.now = 1.0
    assert core.ask(2, HIGH) == []
    assert core.step(LOW, done=(1,)) == ["succeed 1", "execute 2"]


def test_where_others_take_the_devices_memory_running_requests_give_way_too() -> None:
    core = two()
    core.ask(1, LOW)
    core.ask(2, LOW)
    step_low(core, 2)
    assert core.capacity(60) == []
    assert core.step(LOW, seconds=1.0) == ["suspend 2", "step 1"]
    core.suspended(2, key=LOW)
    assert core.kinds() == {"weights": 20, "state": 30}


# Between a suspension and the next.


def test_one_that_gives_way_again_while_it_comes_back_goes_where_its_copy_is() -> None:
    core = preempted()
    core.finish(core.scheduler.state.last_run_id)
    assert core.step(LOW) == ["step 1 resuming 2"]
    core.ask(4, HIGH)
    assert core.step(LOW, seconds=1.0) == ["suspend 2", "step 1"]
    assert core.suspended(2, key=LOW) == ["execute 4"]
    assert core.host_bytes() == 30


def test_one_whose_copy_has_no_room_to_grow_begins_again() -> None:
    core = preempted(host_bytes=30)
    core.finish(core.scheduler.state.last_run_id)
    core.model(LOW).measured.state_growth_bytes = 5
    assert core.step(LOW) == ["step 1 resuming 2"]
    core.ask(4, HIGH)
    assert core.step(LOW, seconds=1.0) == ["drop 1 2"]
    assert core.host_bytes() == 0


def given_way(limit_bytes: int) -> Core:
    """Low's request keeps nine bytes, and has grown by three a step. It gave way for a run of high's, number 2."""
    core = Core.on(DeviceLimits(100, host_bytes=100, run_slots=8), UNGUARDED)
    share = SharePolicy(priority=4, pinned=True, limit_bytes=limit_bytes)
    core.resident(make_spec("low", weights=10, per_row=1, state=3, steps=99, max_batch_size=1, share=share))
    core.resident(make_spec("high", weights=10, fixed=72, share=SharePolicy(priority=1, pinned=True)))
    core.ask(1, LOW)
    for state in (3, 6, 9):
        core.step(LOW, state=state, seconds=1.0)
    core.ask(2, HIGH)
    assert core.step(LOW, state=9, seconds=1.0) == ["suspend 1"]
    assert core.suspended(1, key=LOW) == ["execute 2"]
    return core


def test_who_gave_way_comes_back_within_its_limit_though_there_is_no_room_to_grow() -> None:
    core = given_way(12)
    run = core.model(HIGH).run
    assert run is not None
    assert core.finish(run.run_id) == ["succeed 2", "resuming 1"]
    assert core.kinds() == {"weights": 20, "state": 11, "workspace": 1}


def test_who_can_not_come_back_within_a_limit_that_was_lowered_is_told() -> None:
    core = given_way(40)
    lower = SharePolicy(priority=4, pinned=True, limit_bytes=8)
    assert core.send(events.ShareChanged(LOW, lower)) == ["fail 1: ModelTooLarge", "drop 1"]
