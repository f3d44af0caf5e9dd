"""Models that go to the host rather than altogether, and come back from there."""

import pytest

from moorage.domain.model import Isolation, ModelKey, ModelState, SharePolicy
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_spec

NEXT = ModelKey("next", 1)


def offloading(host_bytes: int = 200, *, isolation: Isolation = Isolation.SHARED, context_bytes: int = 0) -> Core:
    """A model of 60 bytes that can be offloaded, put out for another of 50."""
    core = Core.on(DeviceLimits(100, context_bytes, host_bytes=host_bytes, run_slots=8), UNGUARDED)
    core.resident(make_spec(weights=60, fixed=10, offloads=True, isolation=isolation))
    core.register(make_spec("next", weights=50, fixed=10, offloads=True, isolation=isolation))
    return core


def offloaded() -> Core:
    """It is on the host, and the other in its place."""
    core = offloading()
    core.load(NEXT)
    core.offloaded()
    core.loaded(NEXT, 50)
    return core


@pytest.mark.parametrize(("host_bytes", "decided"), [(60, "offload"), (59, "unload"), (0, "unload")])
def test_a_model_goes_to_the_host_if_there_is_room_for_it(host_bytes: int, decided: str) -> None:
    core = offloading(host_bytes)
    assert core.load(NEXT) == [f"{decided} model/1 on cpu"]


def test_its_bytes_are_free_when_they_are_on_the_host() -> None:
    core = offloading()
    core.load(NEXT)
    assert (core.free_bytes(), core.host_bytes()) == (40, 60)
    assert core.offloaded() == ["load next/1 on cpu"]
    assert (core.free_bytes(), core.host_bytes()) == (50, 60)
    assert core.model().state is ModelState.OFFLOADED


def test_a_request_brings_it_back_with_room_for_its_run() -> None:
    core = offloaded()
    assert core.ask(1, MODEL) == ["offload next/1 on cpu"]
    assert core.offloaded(NEXT) == ["restore model/1 on cpu"]
    assert core.kinds() == {"weights": 60, "workspace": 10}
    assert core.ask(2, NEXT) == []
    assert core.restored() == ["execute 1"]
    assert (core.free_bytes(), core.host_bytes()) == (30, 50)
    assert core.model().counts.restores == 1


def test_weights_and_first_run_come_together_or_not_at_all() -> None:
    core = offloaded()
    core.unload(NEXT)
    core.unloaded(NEXT)
    core.hold(1, 35)
    assert core.ask(1) == ["fail 1: MemoryExhausted"]
    core.let_go(1)
    core.hold(2, 30)
    assert core.ask(2) == ["restore model/1 on cpu"]
    assert core.free_bytes() == 0


def test_the_first_run_is_given_back_when_whoever_it_was_for_has_gone() -> None:
    core = offloaded()
    core.ask(1)
    core.offloaded(NEXT)
    assert core.cancel(1) == []
    assert core.restored() == []
    assert core.kinds() == {"weights": 60}


def test_a_load_brings_it_back_as_well() -> None:
    core = offloaded()
    assert core.load() == ["offload next/1 on cpu"]
    assert core.offloaded(NEXT) == ["restore model/1 on cpu"]
    assert core.load() == []
    assert core.restored(restore_s=0.5) == ["loaded model/1"]
    assert core.model().measured.restore_s == 0.5


@pytest.mark.parametrize("answer", ["offloaded", "failed"])
def test_a_request_that_comes_while_its_model_is_put_out_waits_for_its_return(answer: str) -> None:
    core = offloading()
    core.load(NEXT)
    assert core.ask(1) == []
    if answer == "offloaded":
        assert core.offloaded() == ["load next/1 on cpu"]
    else:
        assert core.offload_failed() == ["unload model/1 on cpu"]
        assert core.unloaded() == ["load next/1 on cpu"]
    way = "restore" if answer == "offloaded" else "load"
    assert core.loaded(NEXT, 50) == ["loaded next/1", "offload next/1 on cpu"]
    assert core.offloaded(NEXT) == [f"{way} model/1 on cpu"]


def test_one_that_can_not_be_offloaded_is_not_tried_again() -> None:
    core = offloading()
    core.load(NEXT)
    assert core.offload_failed() == ["unload model/1 on cpu"]
    assert (core.host_bytes(), core.model().can_offload) == (60, False)
    core.unloaded()
    assert core.host_bytes() == 0


def test_one_that_can_not_be_brought_back_is_loaded_from_disk() -> None:
    core = offloaded()
    core.ask(1)
    core.offloaded(NEXT)
    assert core.restore_failed() == ["unload model/1 on cpu"]
    assert core.unloaded() == ["load model/1 on cpu"]
    assert core.host_bytes() == 50
    assert core.loaded(MODEL, 60) == ["execute 1"]


def test_what_stays_on_the_device_all_the_same_stays_charged() -> None:
    core = offloading()
    core.hold(1, 45)
    assert core.offloaded(retained_bytes=55) == ["hold 1"]
    assert core.kinds() == {"weights": 55, "held": 45}
    assert core.model().state is ModelState.OFFLOADED


def test_what_stayed_goes_with_the_model_where_it_is_needed() -> None:
    core = offloading()
    core.load(NEXT)
    assert core.offloaded(retained_bytes=55) == ["unload model/1 on cpu"]
    assert core.unloaded() == ["load next/1 on cpu"]
    assert (core.host_bytes(), core.model().counts.evictions) == (0, 1)


@pytest.mark.parametrize("retained_bytes", [55, 60])
def test_what_stays_even_then_is_quarantined_and_nobody_waits_for_it(retained_bytes: int) -> None:
    core = offloading()
    core.load(NEXT)
    core.offloaded(retained_bytes=retained_bytes)
    assert core.unloaded(retained_bytes=retained_bytes) == ["not loaded next/1: MemoryExhausted"]
    assert core.kinds() == {"weights": retained_bytes}
    assert core.model().state is ModelState.FAILED


def test_what_stayed_counts_when_it_comes_back() -> None:
    core = offloading()
    core.hold(1, 70)
    core.offloaded(retained_bytes=5)
    core.let_go(1)
    assert core.ask(1) == ["restore model/1 on cpu"]
    assert core.kinds() == {"weights": 60, "workspace": 10}
    assert core.restored() == ["execute 1"]


@pytest.mark.parametrize("move", ["offload", "restore", "unload"])
def test_a_move_that_never_ends_costs_the_worker_its_life(move: str) -> None:
    core = offloading(host_bytes=0 if move == "unload" else 200)
    core.now = 100.0
    core.load(NEXT)
    if move == "restore":
        core.offloaded()
        core.loaded(NEXT, 50)
        core.ask(1)
        core.offloaded(NEXT)
    assert core.wait_until(129.9) == []
    assert core.wait_until(130.0) == ["kill cpu"]
    late = {"offload": core.offloaded, "restore": core.restored, "unload": core.unloaded}[move]
    assert late() == []
    assert core.lose() == ["start cpu"]


def test_a_worker_that_dies_takes_what_was_offloaded_along_and_requests_bring_it_from_disk() -> None:
    core = offloaded()
    core.now = 100.0
    core.lose()
    assert core.host_bytes() == 0
    assert core.model().state is ModelState.UNLOADED
    core.recover()
    core.loaded(NEXT, 50)
    assert core.ask(1) == ["offload next/1 on cpu"]
    assert core.offloaded(NEXT) == ["load model/1 on cpu"]


def test_one_that_was_being_brought_back_when_its_worker_died_comes_from_disk() -> None:
    core = offloaded()
    core.ask(1)
    core.offloaded(NEXT)
    core.lose()
    assert core.recover() == ["start cpu", "load model/1 on cpu"]
    assert core.loaded(MODEL, 60) == ["execute 1"]


def test_one_that_is_offloaded_can_be_unloaded() -> None:
    core = offloaded()
    assert core.unload() == ["unload model/1 on cpu"]
    assert core.unloaded() == ["unloaded model/1"]
    assert core.host_bytes() == 0


def test_a_dedicated_worker_stays_when_its_model_is_offloaded_and_its_own_memory_with_it() -> None:
    core = Core.on(DeviceLimits(100, context_bytes=10, host_bytes=100, run_slots=8), UNGUARDED)
    core.resident(make_spec(weights=60, offloads=True, isolation=Isolation.DEDICATED))
    assert core.hold(1, 50) == ["offload model/1 on cpu/model/1"]
    assert core.offloaded() == ["hold 1"]
    assert core.kinds() == {"context": 10, "held": 50}
    assert core.hold(2, 45) == ["unload model/1 on cpu/model/1"]
    assert core.unloaded() == ["stop cpu/model/1"]
    assert core.lose("cpu/model/1") == ["hold 2"]


def test_a_dedicated_model_goes_altogether_where_its_workers_memory_is_needed_too() -> None:
    core = Core.on(DeviceLimits(100, context_bytes=10, host_bytes=100, run_slots=8), UNGUARDED)
    core.resident(make_spec(weights=60, offloads=True, isolation=Isolation.DEDICATED))
    assert core.hold(1, 95) == ["unload model/1 on cpu/model/1"]
    assert core.unloaded() == ["stop cpu/model/1"]
    assert core.lose("cpu/model/1") == ["hold 1"]


def test_a_dedicated_model_that_can_not_be_offloaded_takes_its_worker_along() -> None:
    core = Core.on(DeviceLimits(100, context_bytes=10, host_bytes=100, run_slots=8), UNGUARDED)
    core.resident(make_spec(weights=60, isolation=Isolation.DEDICATED))
    core.resident(make_spec("spared", weights=5))
    assert core.hold(1, 80) == ["unload model/1 on cpu/model/1"]
    core.unloaded()
    assert core.lose("cpu/model/1") == ["hold 1"]


def test_nobody_else_goes_while_a_dedicated_process_is_on_its_way_out() -> None:
    core = Core.on(DeviceLimits(100, context_bytes=10, run_slots=8), UNGUARDED)
    core.resident(make_spec(weights=60, isolation=Isolation.DEDICATED))
    core.resident(make_spec("spared", weights=10))
    assert core.hold(1, 80) == ["unload model/1 on cpu/model/1"]
    assert core.capacity(100) == []
    core.unloaded()
    assert core.lose("cpu/model/1") == ["hold 1"]


def test_a_pinned_model_that_is_offloaded_before_it_was_pinned_comes_back_when_asked_for() -> None:
    core = offloaded()
    core.share(SharePolicy(pinned=True), MODEL)
    assert core.ask(1) == ["offload next/1 on cpu"]
    core.offloaded(NEXT)
    core.restored()
    core.finish(1)
    assert core.ask(2, NEXT) == ["fail 2: MemoryExhausted"]


def test_news_of_moves_that_nobody_asked_for_are_no_news() -> None:
    core = offloading()
    late = (core.offloaded, core.offload_failed, core.restored, core.restore_failed, core.unloaded)
    assert [answer(key) for answer in late for key in (MODEL, ModelKey("nobody", 1))] == [[]] * 10
    assert core.model().state is ModelState.RESIDENT


def test_one_that_was_brought_back_for_nobody_makes_way_at_once_for_higher_priority() -> None:
    core = Core.on(DeviceLimits(30, host_bytes=100, run_slots=8), UNGUARDED)
    idle = core.resident(make_spec("idle", weights=15, offloads=True))
    urgent = core.resident(make_spec("urgent", weights=5, per_row=20, offloads=True))
    assert core.ask(1, model=urgent, priority=1) == ["offload idle/1 on cpu"]
    core.offloaded(idle)
    core.finish(1)
    assert core.load(idle) == ["restore idle/1 on cpu"]
    assert core.ask(2, model=urgent, priority=1) == []
    assert "offload idle/1 on cpu" in core.restored(idle)
