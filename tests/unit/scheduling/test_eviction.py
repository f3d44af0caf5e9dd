"""Who is put out to make room, and who is not."""

import pytest

from moorage.domain.errors import Held, MemoryExhausted
from moorage.domain.model import Loading, ModelKey, ModelState, SharePolicy
from moorage.scheduling.policy import FIFO, LRU, Policy
from moorage.scheduling.state import DeviceLimits, Limits
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_request, make_spec


def put_in(
    core: Core, name: str, weights: int, *, priority: int = 3, pinned: bool = False, load_s: float = 1.0
) -> ModelKey:
    spec = make_spec(name, weights=weights, share=SharePolicy(priority=priority, pinned=pinned))
    return core.resident(spec, load_s=load_s)


def newcomer(core: Core, weights: int, *, priority: int = 3) -> list[str]:
    """What is decided when a model of that size is to be loaded, long after the others."""
    core.now = max(core.now, 1000.0)
    core.register(make_spec("newcomer", weights=weights, share=SharePolicy(priority=priority)))
    return core.load(ModelKey("newcomer", 1))


def use(core: Core, key: ModelKey, *moments_s: float) -> None:
    for moment_s in moments_s:
        core.now = moment_s
        core.ask(int(moment_s), key)
        core.finish(core.scheduler.state.last_run_id)


def test_the_lowest_priority_goes_first_whatever_it_costs_to_bring_back() -> None:
    core = Core(UNGUARDED)
    put_in(core, "high", 30, priority=2, load_s=0.1)
    low = put_in(core, "low", 30, priority=5, load_s=100.0)
    use(core, low, 900.0)
    assert newcomer(core, 60) == ["unload low/1 on cpu"]


def test_a_newcomer_of_low_priority_puts_out_idle_models_of_high_priority() -> None:
    core = Core(UNGUARDED)
    put_in(core, "high", 60, priority=1)
    assert newcomer(core, 60, priority=5) == ["unload high/1 on cpu"]


def test_within_a_priority_the_cheapest_to_bring_back_goes() -> None:
    core = Core(UNGUARDED)
    for name, load_s in [("slow", 10.0), ("quick", 1.0), ("slower", 20.0)]:
        use(core, put_in(core, name, 30, load_s=load_s), 900.0)
    assert newcomer(core, 40) == ["unload quick/1 on cpu"]


def test_within_a_priority_the_least_likely_to_be_wanted_goes() -> None:
    core = Core(UNGUARDED)
    often, seldom = put_in(core, "often", 30), put_in(core, "seldom", 30)
    use(core, seldom, 990.0)
    use(core, often, 970.0, 980.0, 985.0, 986.0)
    assert newcomer(core, 60) == ["unload seldom/1 on cpu"]


def test_of_equal_costs_the_larger_goes_as_it_costs_less_per_byte() -> None:
    core = Core(UNGUARDED)
    for name, weights in [("a", 20), ("b", 50), ("c", 30)]:
        use(core, put_in(core, name, weights), 900.0)
    assert newcomer(core, 20) == ["unload b/1 on cpu"]


def test_no_more_go_than_are_needed() -> None:
    core = Core(UNGUARDED)
    use(core, put_in(core, "cheap", 10, load_s=1.0), 900.0)
    use(core, put_in(core, "dear", 80, load_s=100.0), 900.0)
    assert newcomer(core, 60) == ["unload dear/1 on cpu"]


def test_several_go_where_one_is_not_enough() -> None:
    core = Core(UNGUARDED)
    for name in "abc":
        put_in(core, name, 30)
    assert newcomer(core, 50) == ["unload a/1 on cpu", "unload b/1 on cpu"]
    assert core.unloaded(ModelKey("a", 1)) == []
    assert core.unloaded(ModelKey("b", 1)) == ["load newcomer/1 on cpu"]
    assert core.model(ModelKey("a", 1)).counts.evictions == 1
    assert core.model(ModelKey("a", 1)).reason == "put out to make room"


def test_a_victims_bytes_are_free_only_when_it_is_out() -> None:
    core = Core(UNGUARDED)
    put_in(core, "idle", 60)
    newcomer(core, 60)
    assert core.free_bytes() == 40
    core.unloaded(ModelKey("idle", 1))
    assert core.kinds() == {"weights": 60}


def test_one_that_is_on_its_way_out_is_not_put_out_for_the_next_as_well() -> None:
    core = Core(UNGUARDED)
    put_in(core, "a", 40)
    put_in(core, "b", 40)
    assert newcomer(core, 40) == ["unload a/1 on cpu"]
    second = core.register(make_spec("second", weights=30))
    assert core.load(second) == []
    assert core.unloaded(ModelKey("a", 1)) == ["unload b/1 on cpu", "load newcomer/1 on cpu"]


def test_a_pinned_model_never_goes_and_whoever_can_not_do_without_is_told_who_holds_what() -> None:
    core = Core(UNGUARDED)
    put_in(core, "pinned", 60, priority=5, pinned=True)
    put_in(core, "idle", 20)
    assert newcomer(core, 50, priority=1) == ["not loaded newcomer/1: MemoryExhausted"]
    error = core.errors()[0]
    assert isinstance(error, MemoryExhausted)
    assert (error.needed_bytes, error.free_bytes) == (50, 40)
    assert error.holders == (Held("pinned/1", "weights", 60),), "the other one would have gone"
    assert core.model(ModelKey("newcomer", 1)).state is ModelState.UNLOADED


def test_one_that_runs_is_waited_for_and_gets_no_further_run() -> None:
    core = Core(UNGUARDED)
    busy = put_in(core, "busy", 60)
    core.now = 1000.0
    core.ask(1, busy)
    assert newcomer(core, 60) == []
    core.now += 1.0
    assert core.ask(2, busy) == []
    assert core.finish(1) == ["succeed 1", "unload busy/1 on cpu"]
    assert core.unloaded(busy) == ["load newcomer/1 on cpu"]
    assert core.loaded(ModelKey("newcomer", 1), 60) == ["loaded newcomer/1", "unload newcomer/1 on cpu"]


def waiting_for_a_slot(priority: int) -> tuple[Core, ModelKey]:
    """A model whose request waits for the only slot, on a device with 10 bytes free."""
    core = Core.on(DeviceLimits(100, run_slots=1), UNGUARDED)
    runner, waiting = put_in(core, "runner", 40, pinned=True), put_in(core, "waiting", 50)
    core.now = 1000.0
    core.ask(1, runner)
    assert core.ask(2, waiting, priority=priority) == []
    return core, waiting


@pytest.mark.parametrize(("priority", "decided"), [(3, ["unload waiting/1 on cpu"]), (4, []), (5, [])])
def test_one_with_queued_work_goes_for_higher_priority_alone(priority: int, decided: list[str]) -> None:
    core, waiting = waiting_for_a_slot(priority=4)
    core.now += 1.0
    assert newcomer(core, 40, priority=priority) == decided
    assert len(core.model(waiting).queue) == 1


def test_one_that_closes_finishes_what_it_accepted_first() -> None:
    core, waiting = waiting_for_a_slot(priority=4)
    core.unload(waiting)
    assert newcomer(core, 40) == []
    assert core.finish(1) == ["succeed 1", "execute 2"]
    assert core.finish(2) == ["succeed 2", "unload waiting/1 on cpu"]
    assert core.unloaded(waiting) == ["unloaded waiting/1", "load newcomer/1 on cpu"]


def test_one_that_was_put_out_with_queued_work_comes_back_for_it() -> None:
    core, waiting = waiting_for_a_slot(priority=4)
    assert newcomer(core, 40) == ["unload waiting/1 on cpu"]
    assert core.unloaded(waiting) == ["load newcomer/1 on cpu"]
    assert core.loaded(ModelKey("newcomer", 1), 40) == ["loaded newcomer/1", "unload newcomer/1 on cpu"]
    assert core.unloaded(ModelKey("newcomer", 1)) == ["load waiting/1 on cpu"]
    assert core.loaded(waiting, 50) == []
    assert core.finish(1) == ["succeed 1", "execute 2"]


@pytest.mark.parametrize(("arrived_s", "decided"), [(999.0, ["unload waiting/1 on cpu"]), (1001.0, [])])
def test_of_equal_priority_whoever_came_first_stays(arrived_s: float, decided: list[str]) -> None:
    core, _ = waiting_for_a_slot(priority=3)
    core.now = 1002.0
    called = core.register(make_spec("called", weights=40, loading=Loading.ON_DEMAND))
    assert core.arrive(make_request(3, model=called, arrived_s=arrived_s, deadline_s=2000.0)) == decided


def test_a_model_that_came_in_lately_stays_for_a_while() -> None:
    core = Core(Limits(min_residency_s=5.0))
    core.now = 1000.0
    put_in(core, "idle", 60)
    assert newcomer(core, 60) == []
    assert core.scheduler.next_wake_s == 1005.0
    assert core.wait_until(1004.9) == []
    assert core.wait_until(1005.0) == ["unload idle/1 on cpu"]


def test_a_model_stays_at_least_as_long_as_its_coming_took() -> None:
    core = Core(Limits(min_residency_s=5.0))
    core.now = 1000.0
    put_in(core, "idle", 60, load_s=20.0)
    newcomer(core, 60)
    assert core.wait_until(1019.9) == []
    assert core.wait_until(1020.0) == ["unload idle/1 on cpu"]


def test_who_waits_for_a_run_to_end_takes_an_idle_model_as_soon_as_that_has_stayed_long_enough() -> None:
    core = Core(Limits(min_residency_s=5.0))
    core.now = 900.0
    busy = put_in(core, "busy", 40)
    core.now = 1000.0
    put_in(core, "idle", 40)
    core.ask(1, busy)
    assert newcomer(core, 30) == []
    assert core.wait_until(1004.9) == []
    assert core.wait_until(1005.0) == ["unload idle/1 on cpu"]


def test_with_one_that_is_unloaded_on_demand_others_may_suffice() -> None:
    core = Core(Limits(min_residency_s=5.0))
    core.now = 1000.0
    guarded = put_in(core, "guarded", 40, priority=2)
    put_in(core, "low", 40, priority=5)
    assert newcomer(core, 90, priority=2) == []
    assert core.unload(guarded) == ["unload guarded/1 on cpu", "unload low/1 on cpu"]


def test_one_that_was_made_room_for_is_looked_at_again_where_higher_priority_takes_of_it() -> None:
    core = Core.on(DeviceLimits(100, run_slots=8), Limits(min_residency_s=0.0, ageing_s=10.0))
    core.now = 1000.0
    put_in(core, "small", 20)
    put_in(core, "large", 40)
    for name in ("small", "large"):
        use(core, ModelKey(name, 1), *([900.0] if name == "small" else [900.0, 950.0, 999.0]))
    assert newcomer(core, 60, priority=2) == ["unload small/1 on cpu"]
    core.now = 1011.0
    assert core.hold(1, 5, priority=1) == ["hold 1", "unload large/1 on cpu"]


def test_for_higher_priority_even_one_that_came_in_lately_goes() -> None:
    core = Core(Limits(min_residency_s=5.0))
    core.now = 1000.0
    put_in(core, "idle", 60, priority=3)
    assert newcomer(core, 60, priority=2) == ["unload idle/1 on cpu"]


def test_one_that_higher_priority_waits_for_behind_aged_work_stays() -> None:
    core = Core.on(DeviceLimits(100), Limits(min_residency_s=1000.0, ageing_s=10.0))
    core.now = 1000.0
    runner, waits = put_in(core, "runner", 0), put_in(core, "waits", 40, priority=2)
    core.ask(1, runner)
    core.ask(2, waits, priority=5)
    assert newcomer(core, 80, priority=4) == []
    core.now = 1045.0
    assert core.ask(3, waits, priority=1) == []
    assert core.finish(1) == ["succeed 1", "execute 2 3"]


def test_what_has_never_been_loaded_here_is_judged_by_its_size() -> None:
    core = Core(UNGUARDED)
    put_in(core, "a", 45)
    put_in(core, "b", 45)
    core.model(ModelKey("a", 1)).measured.load_s = None
    use(core, ModelKey("a", 1), 900.0)
    use(core, ModelKey("b", 1), 900.0)
    assert newcomer(core, 20) == ["unload a/1 on cpu"]


@pytest.mark.parametrize(("policy", "victim"), [(FIFO, "first"), (LRU, "second")])
def test_simpler_policies_look_at_neither_priority_nor_cost(policy: Policy, victim: str) -> None:
    core = Core(UNGUARDED, policy)
    first = put_in(core, "first", 40, priority=1, load_s=100.0)
    core.now = 200.0
    second = put_in(core, "second", 40, priority=5, load_s=1.0)
    use(core, second, 300.0)
    use(core, first, 400.0)
    assert newcomer(core, 30) == [f"unload {victim}/1 on cpu"]
