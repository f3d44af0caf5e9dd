import pytest

from moorage.domain.model import Footprint, ModelKey
from moorage.scheduling.events import ModelRegistered
from moorage.scheduling.records import footprint_of
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, Limits
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_request, make_spec


def test_a_key_is_registered_once() -> None:
    scheduler = Scheduler({"cpu": DeviceLimits(100)})
    scheduler.handle(ModelRegistered(ModelKey("m", 1), make_spec()), 0.0)
    with pytest.raises(AssertionError, match="registered twice"):
        scheduler.handle(ModelRegistered(ModelKey("m", 1), make_spec()), 0.0)


def test_it_wants_to_be_woken_for_what_comes_first() -> None:
    core = Core()
    assert [core.scheduler.next_wake_s] == [None]
    core.register(make_spec(load_timeout_s=50.0))
    core.load()
    assert core.scheduler.next_wake_s == 50.0
    core.arrive(make_request(1, deadline_s=20.0))
    assert core.scheduler.next_wake_s == 20.0


def test_timers_of_answered_requests_do_not_pile_up() -> None:
    core = Core()
    core.resident()
    for number in range(1, 5001):
        core.arrive(make_request(number))
        core.finish(number)
    assert len(core.scheduler.state.timers) < 2000


def test_timers_of_loads_do_not_pile_up() -> None:
    core = Core()
    core.register()
    core.load()
    core.up()
    for _ in range(3000):
        core.load_failed()
        core.now += 0.001
        core.load()
    assert len(core.scheduler.state.timers) < 2000


def test_timers_of_restarts_that_are_not_needed_any_more_do_not_pile_up() -> None:
    core = Core()
    for _ in range(1500):
        core.now += 0.001  # else all of a kind would matter as long as one does
        core.register()
        core.load()
        core.lose()
        core.wait_until(core.now)
        core.lose()
        core.unload()
    assert len(core.scheduler.state.timers) < 2000


def test_the_same_events_lead_to_the_same_actions() -> None:
    def play() -> list[list[str]]:
        core = Core(cpu=100, gpu=100)
        decided = []
        for name in ("a", "b", "c", "d"):
            key = core.register(make_spec(name, weights=20, per_row=20))
            decided.append(core.load(key))
        decided += [core.up("cpu"), core.up("gpu"), core.lose("gpu"), core.lose("cpu"), core.wait_until(1.0)]
        return decided

    assert play() == play()


def test_timers_of_holds_do_not_pile_up() -> None:
    core = Core()
    for number in range(2500):
        core.hold(number, 10)
        core.let_go(number)
    assert len(core.scheduler.state.timers) < 2000


def test_timers_of_moves_do_not_pile_up() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=60))
    for number in range(1000):
        core.now += 0.001
        assert core.hold(number, 50) == ["unload model/1 on cpu"]
        core.unloaded()
        core.let_go(number)
        core.load()
        core.loaded(weights_bytes=60)
    assert len(core.scheduler.state.timers) < 2000


def test_what_still_matters_is_kept_among_them() -> None:
    core = Core(Limits(min_residency_s=5.0))
    core.resident(make_spec(weights=60))
    assert core.hold(0, 50) == []
    for number in range(1, 2500):
        core.hold(number, 10)
        core.let_go(number)
    assert len(core.scheduler.state.timers) < 2000
    assert core.wait_until(5.0) == ["unload model/1 on cpu"]


def test_timers_of_states_do_not_pile_up() -> None:
    core = Core()
    core.resident(make_spec(steps=9, state=5))
    for number in range(1000):
        core.ask(number)
        core.cancel(number)
        assert core.step() == [f"drop {number}"]
        core.dropped(number)
    assert len(core.scheduler.state.timers) < 2000


def test_what_is_known_of_a_model_can_be_remembered() -> None:
    core = Core(UNGUARDED)
    before = Footprint(weights_bytes=30, load_s=2.0, restore_s=0.5, state_bytes=7, uses_per_s=0.25)
    core.send(ModelRegistered(MODEL, make_spec(weights=None, steps=9), before))
    assert footprint_of(core.model(), core.now) == before
    core.load()
    assert core.free_bytes() == 70
    core.up()
    core.loaded(weights_bytes=20, load_s=3.0)
    core.ask(1)
    core.step(state=9)
    core.now = 4.0
    assert footprint_of(core.model(), core.now) == Footprint(20, 3.0, 0.5, 9, 0.25)
