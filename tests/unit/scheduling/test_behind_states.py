"""Weights that are put out once the states of their running requests have gone."""

from moorage.domain.model import ModelKey, PreemptionPolicy, SharePolicy
from moorage.scheduling import events
from moorage.scheduling.state import DeviceLimits, Limits
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_spec

LOW, HIGH = ModelKey("low", 1), ModelKey("high", 1)


def test_weights_go_behind_their_states() -> None:
    core = Core.on(DeviceLimits(100, host_bytes=100, run_slots=8), UNGUARDED)
    core.resident(make_spec("low", weights=40, state=20, steps=9, share=SharePolicy(priority=4)))
    core.ask(1, LOW)
    core.step(LOW, seconds=1.0)
    core.step(LOW, seconds=1.0)
    core.register(make_spec("high", weights=90, share=SharePolicy(priority=2)))
    assert core.load(HIGH) == []
    assert core.step(LOW, seconds=1.0) == ["suspend 1"]
    assert core.suspended(1, key=LOW) == ["unload low/1 on cpu"]
    assert core.host_bytes() == 20
    assert core.unloaded(LOW) == ["load high/1 on cpu"]
    assert core.host_bytes() == 0
    assert core.loaded(HIGH, 90) == ["loaded high/1", "unload high/1 on cpu"]
    assert core.unloaded(HIGH) == ["load low/1 on cpu"]
    assert core.loaded(LOW, 40) == ["starting 1"]


def test_a_model_that_is_to_go_behind_its_states_lets_nobody_else_begin() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("low", weights=40, state=5, steps=9, max_batch_size=1, share=SharePolicy(priority=4)))
    core.ask(1, LOW)
    core.ask(2, LOW)
    core.register(make_spec("high", weights=90, share=SharePolicy(priority=2)))
    assert core.load(HIGH) == []
    assert core.step(LOW) == ["drop 1"]
    assert core.dropped(1, key=LOW) == ["unload low/1 on cpu"]


def test_weights_stay_where_their_states_may_not_go() -> None:
    core = Core(UNGUARDED)
    policy = PreemptionPolicy(max_preemptions=0)
    core.resident(make_spec("low", weights=40, state=20, steps=9, preemption=policy, share=SharePolicy(priority=4)))
    core.ask(1, LOW)
    core.register(make_spec("high", weights=90, share=SharePolicy(priority=2)))
    assert core.load(HIGH) == []
    assert core.model(LOW).run is not None


def test_nobody_gives_way_where_the_weights_stay_for_work_of_higher_priority_that_waits() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("low", weights=40, state=5, steps=9, share=SharePolicy(priority=4)))
    core.ask(1, LOW)
    core.ask(2, LOW, priority=1)
    core.register(make_spec("high", weights=90, share=SharePolicy(priority=2)))
    assert core.load(HIGH) == []
    assert core.step(LOW) == ["step 1 starting 2"]


def test_weights_that_came_in_lately_stay_though_their_states_may_go() -> None:
    core = Core(Limits(min_residency_s=20.0))
    core.resident(make_spec("low", weights=40, state=5, steps=9, max_batch_size=1, share=SharePolicy(priority=3)))
    core.ask(1, LOW, priority=5)
    core.register(make_spec("high", weights=90, share=SharePolicy(priority=4)))
    assert core.load(HIGH) == []
    assert core.step(LOW) == ["step 1"]
    core.now = 20.0
    assert core.send(events.TimeReached()) == []
    assert core.step(LOW) == ["drop 1"]
    assert core.dropped(1, key=LOW) == ["unload low/1 on cpu"]
