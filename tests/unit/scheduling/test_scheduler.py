import pytest

from moorage.domain.model import ModelKey
from moorage.scheduling.events import ModelRegistered
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec


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
