"""Whose turn it is for a run slot and for memory."""

import pytest

from moorage.domain.model import Isolation, Loading, ModelKey, SharePolicy
from moorage.scheduling.policy import FIFO, MOORAGE, ROUND_ROBIN, Policy, policy_named
from moorage.scheduling.state import DeviceLimits, Limits
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_request, make_spec

PINNED = SharePolicy(pinned=True)


def one_slot(*names: str, ageing_s: float = 10.0, policy: Policy = MOORAGE) -> tuple[Core, list[ModelKey]]:
    """Small models that share one slot; the first of them has it."""
    core = Core.on(DeviceLimits(100), Limits(ageing_s=ageing_s), policy)
    keys = [core.resident(make_spec(name, weights=1)) for name in names]
    assert core.ask(1, keys[0]) == ["execute 1"]
    return core, keys


def test_a_device_runs_as_many_at_once_as_it_has_slots() -> None:
    core = Core.on(DeviceLimits(100, run_slots=2))
    keys = [core.resident(make_spec(name)) for name in "abc"]
    decided = [core.ask(number, key) for number, key in enumerate(keys, start=1)]
    assert decided == [["execute 1"], ["execute 2"], []]
    assert core.finish(2) == ["succeed 2", "execute 3"]


def test_a_free_slot_goes_to_the_highest_priority() -> None:
    core, (_, low, high) = one_slot("runner", "low", "high")
    assert [core.ask(2, low, priority=4), core.ask(3, high, priority=1)] == [[], []]
    assert core.finish(1) == ["succeed 1", "execute 3"]
    assert core.finish(2) == ["succeed 3", "execute 2"]


def test_within_a_model_the_highest_priority_runs_first_though_it_came_last() -> None:
    core, (runner,) = one_slot("runner")
    core.arrive(make_request(2, model=runner, batch_key="x"))
    core.arrive(make_request(3, model=runner, batch_key="y", priority=1))
    assert core.finish(1) == ["succeed 1", "execute 3"]


@pytest.mark.parametrize(("came_s", "first", "second"), [(9.9, 3, 2), (10.1, 2, 3)])
def test_who_waits_rises_a_level_each_time_the_ageing_passes(came_s: float, first: int, second: int) -> None:
    core, (_, low, high) = one_slot("runner", "low", "high")
    core.ask(2, low, priority=2)
    core.now = came_s
    core.ask(3, high, priority=1)
    assert core.finish(1) == ["succeed 1", f"execute {first}"]
    assert core.finish(2) == [f"succeed {first}", f"execute {second}"]


def test_without_priorities_who_came_first_goes_first() -> None:
    core, (_, low, high) = one_slot("runner", "low", "high", policy=FIFO)
    core.now = 1.0
    core.ask(2, low, priority=5)
    core.now = 2.0
    core.ask(3, high, priority=1)
    assert core.finish(1) == ["succeed 1", "execute 2"]


def test_in_turns_whoever_had_theirs_longest_ago_goes_first() -> None:
    core, (first, second) = one_slot("first", "second", policy=ROUND_ROBIN)
    core.now = 1.0
    core.arrive(make_request(2, model=first))
    core.arrive(make_request(3, model=second, arrived_s=1.0))
    assert core.finish(1) == ["succeed 1", "execute 3"]
    assert core.finish(2) == ["succeed 3", "execute 2"]


def test_policies_have_names() -> None:
    assert policy_named("fifo") is FIFO
    with pytest.raises(ValueError, match="expected one of moorage, fifo, lru, round_robin, got 'lifo'"):
        policy_named("lifo")


def runners(core: Core, **sizes: int) -> list[ModelKey]:
    """Models without weights, whose runs take that much."""
    return [core.resident(make_spec(name, weights=0, fixed=size)) for name, size in sizes.items()]


def test_who_is_small_goes_ahead_where_it_takes_nothing_of_what_the_head_waits_for() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("idle", weights=50))
    head, small, large = runners(core, head=60, small=40, large=41)
    assert core.ask(1, head) == ["unload idle/1 on cpu"]
    assert core.ask(2, large) == []
    assert core.ask(3, small) == ["execute 3"]
    assert core.unloaded(ModelKey("idle", 1)) == ["execute 1"]


def test_nobody_goes_ahead_of_a_head_that_waits_for_a_run_to_end() -> None:
    core = Core()
    runner, head, small = runners(core, runner=60, head=50, small=10)
    core.ask(1, runner)
    assert [core.ask(2, head), core.ask(3, small)] == [[], []]
    assert core.finish(1) == ["succeed 1", "execute 2", "execute 3"]


def test_what_takes_nothing_delays_nobody() -> None:
    core = Core()
    runner, head, nothing = runners(core, runner=60, head=50, nothing=0)
    core.ask(1, runner)
    core.ask(2, head)
    assert core.ask(3, nothing) == ["execute 3"]


def test_a_newcomer_leaves_what_the_next_needs_who_waits_for_a_slot() -> None:
    core = Core.on(DeviceLimits(100))
    runner, following = runners(core, runner=0, following=60)
    core.ask(1, runner)
    core.ask(2, following, priority=1)
    core.register(make_spec(weights=50))
    assert core.load() == []
    assert core.finish(1) == ["succeed 1", "execute 2"]
    assert core.finish(2) == ["succeed 2", "load model/1 on cpu"]


def test_a_newcomer_of_higher_priority_does_not() -> None:
    core = Core.on(DeviceLimits(100))
    runner, following = runners(core, runner=0, following=60)
    core.ask(1, runner)
    core.ask(2, following, priority=4)
    core.register(make_spec(weights=50, share=SharePolicy(priority=1)))
    assert core.load() == ["load model/1 on cpu"]


def test_a_load_takes_its_place_by_the_best_of_those_who_wait_for_it() -> None:
    core = Core()
    (runner,) = runners(core, runner=80)
    core.ask(1, runner)
    plain, urgent = (
        core.register(make_spec("plain", weights=60)),
        core.register(make_spec("urgent", weights=60, loading=Loading.ON_DEMAND)),
    )
    assert [core.load(plain), core.ask(2, urgent, priority=1)] == [[], []]
    assert core.finish(1) == ["succeed 1", "load urgent/1 on cpu"]


def test_a_model_that_lost_its_worker_holds_nobody_up() -> None:
    core = Core()
    core.resident(make_spec("own", weights=10, isolation=Isolation.DEDICATED))
    (other,) = runners(core, other=50)
    core.ask(1, ModelKey("own", 1))
    core.lose("cpu/own/1")
    assert core.wait_until(core.now) == ["start cpu/own/1"]
    assert core.ask(2, other) == ["execute 2"]


# Loads that may put nobody out.


def test_a_load_that_may_put_nobody_out_stands_by_until_the_first_request() -> None:
    core = Core(UNGUARDED)
    idle = core.resident(make_spec("idle", weights=60))
    core.register(make_spec(weights=50))
    assert core.load(may_evict=False) == ["loaded model/1"]
    assert core.model().reason == "waiting for its first request: memory is held by others"
    assert core.ask(1) == ["unload idle/1 on cpu"]
    core.unloaded(idle)
    assert core.loaded(weights_bytes=50) == ["execute 1"]


def test_it_is_loaded_where_there_is_room() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("idle", weights=40))
    core.register(make_spec(weights=50))
    assert core.load(may_evict=False) == ["load model/1 on cpu"]


def test_it_may_put_others_out_once_a_request_waits_for_it() -> None:
    core = Core(UNGUARDED)
    idle = core.resident(make_spec("idle", weights=60))
    core.ask(1, idle)
    core.register(make_spec(weights=50, loading=Loading.ON_DEMAND))
    core.ask(2)
    assert core.load(may_evict=False) == []
    assert core.finish(1) == ["succeed 1", "unload idle/1 on cpu"]
    core.unloaded(idle)
    assert core.loaded(weights_bytes=50) == ["loaded model/1", "execute 2"]


def test_an_offloaded_one_stands_by_on_the_host() -> None:
    core = Core.on(DeviceLimits(100, host_bytes=100), UNGUARDED)
    core.resident(make_spec(weights=60, offloads=True))
    core.hold(1, 50)
    core.offloaded()
    assert core.load(may_evict=False) == ["loaded model/1"]
    assert core.let_go(1) == []
    assert core.host_bytes() == 60


# Who is looked past.


@pytest.mark.parametrize(("others", "loads"), [(2, True), (3, False)])
def test_only_so_many_who_can_not_come_are_looked_past(others: int, loads: bool) -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("idle", weights=60))
    first = core.register(make_spec("first", weights=70))
    assert core.load(first) == ["unload idle/1 on cpu"]
    for number in range(others):
        core.load(core.register(make_spec(f"large{number}", weights=90)))
    small = core.register(make_spec("small", weights=10))
    assert core.load(small) == (["load small/1 on cpu"] if loads else [])


def test_one_that_has_aged_waits_on_while_higher_priority_goes_ahead_of_it() -> None:
    core = Core()
    runner = core.resident(make_spec("runner", weights=0, fixed=60, share=PINNED))
    aged, equal, high = runners(core, aged=50, equal=20, high=20)
    core.ask(1, runner)
    core.ask(2, aged, priority=3)
    core.now = 25.0
    assert core.ask(3, equal, priority=3) == []
    assert core.ask(4, high, priority=1) == ["execute 4"]


def test_higher_priority_goes_ahead_of_one_that_has_aged_also_where_its_model_waits_already() -> None:
    core = Core()
    runner = core.resident(make_spec("runner", weights=0, fixed=60, share=PINNED))
    aged, both = runners(core, aged=50, both=20)
    core.ask(1, runner)
    core.ask(2, aged, priority=3)
    core.now = 1.0
    assert core.ask(3, both, priority=3) == []
    core.now = 25.0
    assert core.ask(4, both, priority=1) == ["execute 4"]


def test_a_newcomer_of_higher_priority_takes_what_one_of_lower_that_has_aged_would_need() -> None:
    core = Core.on(DeviceLimits(100))
    runner, following = runners(core, runner=0, following=60)
    core.ask(1, runner)
    core.ask(2, following, priority=4)
    core.now = 20.0
    core.register(make_spec(weights=50))
    assert core.load() == ["load model/1 on cpu"]
    assert core.ask(3, runner) == []


def test_the_wake_up_is_for_whoever_may_go_first() -> None:
    """`slow` may go at 100 s, `quick` came later and may go at 6 s."""
    core = Core(Limits(min_residency_s=5.0))
    core.resident(make_spec("slow", weights=60), load_s=100.0)
    quick = core.register(make_spec("quick", weights=30))
    core.load(quick)
    core.register(make_spec(weights=35))
    assert core.load() == []
    core.now = 1.0
    core.loaded(quick, 30)
    assert core.wait_until(6.0) == ["unload quick/1 on cpu"]


def test_one_of_higher_priority_joins_its_model_ahead_of_one_that_has_aged() -> None:
    core = Core()
    runner = core.resident(make_spec("runner", weights=0, fixed=60, share=PINNED))
    aged = core.resident(make_spec("aged", weights=0, fixed=50))
    stepped = core.resident(make_spec("stepped", weights=0, fixed=10, state=5, steps=9))
    core.ask(1, runner)
    core.ask(2, aged, priority=3)
    core.now = 25.0
    assert core.ask(3, stepped, priority=1) == ["starting 3"]
    assert core.step(stepped) == ["step 3"]


def test_a_model_comes_in_by_what_its_request_asks_for_and_not_by_its_own_standing() -> None:
    """It would take the memory with one right, stand in line with the other, be put out again, and so on for ever."""
    core = Core(UNGUARDED)
    busy = core.resident(make_spec("busy", weights=80))
    core.ask(1, busy)
    assert core.hold(2, 70, priority=3) == []
    key = core.register(make_spec("high", weights=50, loading=Loading.ON_DEMAND, share=SharePolicy(priority=1)))
    assert core.ask(3, key, priority=3) == []
    assert core.finish(1) == ["succeed 1", "unload busy/1 on cpu"]
    assert core.unloaded(busy) == ["hold 2", "fail 3: MemoryExhausted"]
