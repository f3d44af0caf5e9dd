"""Processes outside take bytes of a device's budget."""

import pytest

from moorage.domain.errors import InvalidRequest, ModelTooLarge
from moorage.domain.model import Loading, SharePolicy
from moorage.scheduling.events import HoldRequested
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_spec


def test_a_hold_has_its_bytes_until_it_is_let_go() -> None:
    core = Core()
    assert core.hold(1, 60) == ["hold 1"]
    assert core.kinds() == {"held": 60}
    assert core.let_go(1) == []
    assert core.free_bytes() == 100


def test_a_hold_puts_idle_models_out_and_they_come_back_when_it_is_let_go() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=60))
    assert core.hold(1, 50) == ["unload model/1 on cpu"]
    assert core.unloaded() == ["hold 1"]
    assert core.ask(1) == ["fail 1: MemoryExhausted"]
    core.let_go(1)
    assert core.ask(2) == ["load model/1 on cpu"]


def test_a_hold_waits_its_turn() -> None:
    core = Core()
    runner = core.resident(make_spec("runner", weights=0, fixed=60))
    core.ask(1, runner)
    assert [core.hold(1, 60, priority=4), core.hold(2, 60, priority=2)] == [[], []]
    assert core.finish(1) == ["succeed 1", "hold 2", "no hold 1: MemoryExhausted"]


def test_a_small_hold_goes_ahead_where_the_first_can_do_without() -> None:
    core = Core(UNGUARDED)
    runner = core.resident(make_spec("runner", weights=0, fixed=60))
    core.ask(1, runner)
    assert core.hold(1, 70) == []
    assert [core.hold(2, 31), core.hold(3, 30)] == [[], ["hold 3"]]
    assert core.let_go(2) == []
    assert core.finish(1) == ["succeed 1", "hold 1"]


def test_a_hold_that_waited_long_enough_is_told_so() -> None:
    core = Core()
    runner = core.resident(make_spec("runner", weights=0, fixed=60))
    core.ask(1, runner)
    assert core.hold(1, 50, patience_s=5.0) == []
    assert core.hold(2, 10) == []
    assert core.wait_until(5.0) == ["no hold 1: DeadlineExceeded", "hold 2"]


def test_the_deadline_of_a_hold_that_has_its_bytes_means_nothing() -> None:
    core = Core()
    core.hold(1, 50, patience_s=5.0)
    assert core.wait_until(5.0) == []
    assert core.kinds() == {"held": 50}


def test_a_hold_that_is_let_go_while_it_waits_makes_way() -> None:
    core = Core()
    runner = core.resident(make_spec("runner", weights=0, fixed=60))
    core.ask(1, runner)
    core.hold(1, 50)
    assert core.hold(2, 10) == []
    assert core.let_go(1) == ["hold 2"]
    assert core.let_go(1) == []


@pytest.mark.parametrize(("size_bytes", "error"), [(101, "ModelTooLarge"), (60, "MemoryExhausted")])
def test_a_hold_that_can_never_be_is_refused(size_bytes: int, error: str) -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=50, share=SharePolicy(pinned=True)))
    assert core.hold(1, size_bytes) == [f"no hold 1: {error}"]
    assert isinstance(core.errors()[0], ModelTooLarge) == (size_bytes > 100)


def test_a_hold_on_a_device_that_there_is_not_names_those_that_there_are() -> None:
    core = Core(cpu=10, gpu=10)
    assert core.send(HoldRequested(1, "tpu", 1, 3, 10.0)) == ["no hold 1: InvalidRequest"]
    error = core.errors()[0]
    assert isinstance(error, InvalidRequest)
    assert str(error) == "device: expected one of cpu, gpu, got tpu"


def test_a_hold_keeps_its_bytes_whoever_comes() -> None:
    core = Core(UNGUARDED)
    core.hold(1, 60, priority=5)
    core.register(make_spec(weights=50, loading=Loading.ON_DEMAND))
    assert core.ask(1, priority=1) == ["fail 1: MemoryExhausted"]


def test_who_begins_beside_a_hold_that_found_nobody_to_make_way_is_told_to() -> None:
    core = Core.on(DeviceLimits(34, host_bytes=10, run_slots=8), UNGUARDED)
    share = SharePolicy(priority=5, pinned=True)
    spec = make_spec("low", weights=6, per_row=4, state=2, steps=4, share=share, loading=Loading.ON_DEMAND)
    low = core.register(spec)
    core.ask(1, low, rows=4)
    assert core.hold(1, 27, priority=1) == []
    core.up()
    assert core.loaded(low, 6) == ["starting 1"]
    assert core.scheduler.state.devices["cpu"].budget.leaving_bytes == 2
    assert core.step(low) == ["drop 1"]
    assert core.dropped(1, key=low)[0] == "hold 1"
