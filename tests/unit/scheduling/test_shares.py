"""What each model may have of its device, and what a device offers, changed while the server runs."""

import pytest

from moorage.domain.errors import MemoryExhausted, ModelNotFound
from moorage.domain.model import Isolation, ModelKey, SharePolicy
from moorage.scheduling.events import ModelRegistered
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_request, make_spec


def reserving(size_bytes: int, *, weights: int = 10, fixed: int = 0) -> Core:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=weights, fixed=fixed, share=SharePolicy(reserved_bytes=size_bytes, pinned=True)))
    return core


def test_what_is_reserved_is_kept_from_others_until_the_model_is_unloaded() -> None:
    core = reserving(40)
    assert (core.free_bytes(), core.hold(1, 60), core.hold(2, 1)) == (90, ["hold 1"], ["no hold 2: MemoryExhausted"])
    core.unload()
    core.unloaded()
    assert core.hold(3, 40) == ["hold 3"]


def test_the_model_itself_has_what_is_reserved_for_it() -> None:
    core = reserving(40, fixed=30)
    core.hold(1, 60)
    assert core.ask(1) == ["execute 1"]
    assert core.free_bytes() == 0


def test_a_load_waits_until_all_that_is_reserved_can_be_had() -> None:
    core = Core(UNGUARDED)
    idle = core.resident(make_spec("idle", weights=50))
    core.register(make_spec(weights=10, share=SharePolicy(reserved_bytes=60, pinned=True)))
    assert core.load() == ["unload idle/1 on cpu"]
    assert core.unloaded(idle) == ["load model/1 on cpu"]
    assert core.hold(1, 41) == ["no hold 1: MemoryExhausted"]


def test_more_reserved_than_the_device_has_is_refused() -> None:
    core = Core()
    core.register(make_spec(share=SharePolicy(reserved_bytes=101)))
    assert core.load() == ["not loaded model/1: ModelTooLarge"]


def test_a_models_runs_stay_within_its_limit() -> None:
    core = Core()
    core.resident(make_spec(per_row=10, share=SharePolicy(limit_bytes=25), max_batch_size=8))
    core.ask(1)
    for number in (2, 3, 4):
        core.ask(number)
    assert core.finish(1) == ["succeed 1", "execute 2 3"]
    assert core.finish(2) == ["succeed 2 3", "execute 4"]


def test_a_limit_is_no_concern_of_weights() -> None:
    core = Core()
    core.resident(make_spec(weights=90, per_row=5, share=SharePolicy(limit_bytes=5)))
    assert core.ask(1) == ["execute 1"]


def test_a_lower_limit_refuses_what_waits_and_is_too_large_for_it_now() -> None:
    core = Core()
    core.resident(make_spec(per_row=10))
    core.ask(1)
    core.ask(2, rows=3)
    assert core.share(SharePolicy(limit_bytes=20)) == ["fail 2: ModelTooLarge"]
    assert core.ask(3, rows=3) == ["fail 3: ModelTooLarge"]


def test_a_higher_reservation_is_kept_from_now_on() -> None:
    core = reserving(0)
    core.share(SharePolicy(reserved_bytes=50, pinned=True))
    assert core.hold(1, 51) == ["no hold 1: MemoryExhausted"]
    assert core.hold(2, 50) == ["hold 2"]


def test_a_lower_reservation_serves_those_who_wait() -> None:
    core = reserving(60)
    runner = core.resident(make_spec("runner", weights=0, fixed=30))
    core.ask(1, runner)
    assert core.hold(1, 40) == []
    assert core.share(SharePolicy(reserved_bytes=20, pinned=True)) == ["hold 1"]


def test_a_reservation_that_is_not_free_changes_nothing() -> None:
    core = reserving(0)
    core.hold(1, 80)
    core.share(SharePolicy(priority=1, reserved_bytes=50))
    assert core.model().share == SharePolicy(pinned=True)
    assert core.hold(2, 10) == ["hold 2"]


def test_the_share_of_a_model_that_is_not_loaded_changes_for_its_next_load() -> None:
    core = Core()
    core.register()
    core.share(SharePolicy(reserved_bytes=60, pinned=True))
    core.load()
    assert core.hold(1, 41) == ["no hold 1: MemoryExhausted"]


def test_another_priority_counts_for_requests_that_name_none() -> None:
    core = Core.on(DeviceLimits(100))
    runner, other = core.resident(make_spec("runner")), core.resident(make_spec("other"))
    core.resident()
    core.ask(1, runner)
    core.ask(2, other, priority=2)
    core.share(SharePolicy(priority=1))
    core.ask(3)
    assert core.finish(1) == ["succeed 1", "execute 3"]


def test_one_that_is_unpinned_goes_to_make_room_for_who_waits() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("pinned", weights=50, share=SharePolicy(pinned=True)))
    runner = core.resident(make_spec("runner", weights=0, fixed=50))
    core.ask(1, runner)
    core.register(make_spec(weights=50))
    assert core.load() == []
    assert core.share(SharePolicy(), ModelKey("pinned", 1)) == ["unload pinned/1 on cpu"]


def test_a_share_of_what_nobody_knows_means_nothing() -> None:
    assert Core().share(SharePolicy()) == []


def test_a_change_is_tried_before_it_is_made() -> None:
    core = reserving(0)
    core.hold(1, 70)
    share = core.scheduler.changed_share(MODEL, lambda before: SharePolicy(before.priority, reserved_bytes=30))
    assert share == SharePolicy(3, reserved_bytes=30)
    assert core.model().share == SharePolicy(pinned=True)
    with pytest.raises(MemoryExhausted) as raised:
        core.scheduler.changed_share(MODEL, lambda before: SharePolicy(before.priority, reserved_bytes=31))
    assert (raised.value.needed_bytes, raised.value.free_bytes) == (31, 30)
    with pytest.raises(ModelNotFound):
        core.scheduler.changed_share(ModelKey("nobody", 1), lambda before: before)


def test_more_than_a_device_has_can_not_be_reserved_while_a_model_waits_for_its_memory() -> None:
    core = Core()
    runner = core.resident(make_spec("runner", weights=0, fixed=95))
    core.ask(1, runner)
    core.register()
    core.load()
    with pytest.raises(MemoryExhausted):
        core.scheduler.changed_share(MODEL, lambda _: SharePolicy(reserved_bytes=101))
    core.share(SharePolicy(reserved_bytes=50, pinned=True))
    assert core.finish(1) == ["succeed 1", "load model/1 on cpu"]
    assert core.hold(1, 51) == ["no hold 1: MemoryExhausted"]


def test_what_is_reserved_for_a_model_is_not_put_out_for_others() -> None:
    core = Core.on(DeviceLimits(100, host_bytes=100), UNGUARDED)
    core.resident(make_spec(weights=60, offloads=True, share=SharePolicy(reserved_bytes=60)))
    assert core.hold(1, 50) == ["no hold 1: MemoryExhausted"]


def test_states_within_what_is_reserved_for_their_model_give_way_to_nobody() -> None:
    core = Core(UNGUARDED)
    low = core.resident(make_spec("low", weights=10, state=15, steps=9, share=SharePolicy(reserved_bytes=40)))
    other = core.resident(make_spec("other", weights=10, state=20, steps=9))
    for number, key in ((1, low), (2, low), (3, other)):
        core.ask(number, key, priority=5)
        core.step(key)
    assert core.hold(1, 35, priority=1) == []
    assert core.step(low) == ["step 1 2"]
    assert core.step(other) == ["drop 3"]
    assert "hold 1" in core.dropped(3, key=other)


def test_the_process_of_a_model_that_has_something_reserved_is_not_counted_on() -> None:
    core = Core.on(DeviceLimits(60, context_bytes=5, host_bytes=100, run_slots=8), UNGUARDED)
    alone = make_spec(
        "alone", weights=11, offloads=True, isolation=Isolation.DEDICATED, share=SharePolicy(reserved_bytes=10)
    )
    core.resident(alone)
    asking = core.resident(make_spec("asking", weights=10, fixed=31))
    assert core.ask(1, asking) == ["fail 1: MemoryExhausted"]


# What a device offers.


def test_where_others_take_memory_idle_models_go() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("low", weights=40, share=SharePolicy(priority=5)))
    core.resident(make_spec("high", weights=40, share=SharePolicy(priority=1)))
    assert core.capacity(60) == ["unload low/1 on cpu"]
    assert core.unloaded(ModelKey("low", 1)) == []


def test_then_even_one_that_came_in_lately_and_has_work_waiting_goes() -> None:
    core = Core.on(DeviceLimits(100))
    runner = core.resident(make_spec("runner", weights=10, share=SharePolicy(pinned=True)))
    core.resident(make_spec(weights=80))
    core.ask(1, runner)
    core.ask(2)
    assert core.capacity(50) == ["unload model/1 on cpu"]


def test_what_can_not_go_stays_and_the_device_is_overdrawn_for_a_while() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("pinned", weights=60, share=SharePolicy(pinned=True)))
    idle = core.resident(make_spec("idle", weights=20))
    assert core.capacity(30) == ["unload idle/1 on cpu"]
    core.unloaded(idle)
    assert core.scheduler.state.devices["cpu"].budget.overdrawn_bytes == 30
    assert core.capacity(1000) == []
    assert core.free_bytes() == 40


def test_what_comes_back_serves_those_who_wait() -> None:
    core = Core(UNGUARDED)
    runner = core.resident(make_spec("runner", weights=0, fixed=50))
    core.ask(1, runner)
    core.capacity(60)
    core.register(make_spec(weights=20))
    assert core.load() == []
    assert core.capacity(100) == ["load model/1 on cpu"]


def test_a_run_that_does_not_fit_any_more_waits_for_nothing_less_than_its_memory() -> None:
    core = Core()
    core.resident(make_spec(weights=10, fixed=50))
    core.capacity(40)
    assert core.ask(1) == ["fail 1: MemoryExhausted"]
    core.capacity(60)
    assert core.arrive(make_request(2)) == ["execute 2"]


@pytest.mark.parametrize("changed", [True, False])
def test_a_new_generation_has_the_standing_that_an_operator_gave_the_one_before(changed: bool) -> None:
    core = reserving(0)
    given = SharePolicy(priority=1)
    if changed:
        core.share(given)
    declared = SharePolicy(priority=2)
    core.send(ModelRegistered(MODEL._replace(generation=1), make_spec(share=declared)))
    assert core.model(MODEL._replace(generation=1)).share == (given if changed else declared)
