"""What a warm-up takes is leased while it runs, or it is not run. What its runs took of time is known from then on."""

import dataclasses

import pytest

from moorage.domain.model import Loading, ModelKey, ModelSpec, ModelState, ProfiledRun, SharePolicy, WarmupRun
from moorage.domain.request import RehearsedRun
from moorage.domain.tensor import Datatype, TensorSpec
from moorage.scheduling import actions, events
from moorage.scheduling.explain import Verdict
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_request, make_spec

# 4 rows, of 10 bytes each.
WARM = make_spec(weights=30, per_row=10, warmup=(WarmupRun(1), WarmupRun(4, count=3), WarmupRun(2)))
PINNED = SharePolicy(pinned=True)


def warms_up(core: Core) -> bool:
    """Whether the worker is now told to load with a warm-up."""
    (load,) = [action for action in core.decided if isinstance(action, actions.Load)]
    return bool(load.spec.warmup)


def loading(core: Core) -> Core:
    core.register(WARM)
    core.load()
    core.up()
    return core


def test_its_largest_run_is_leased_with_the_weights_until_the_model_is_there() -> None:
    core = loading(Core(cpu=100))
    assert warms_up(core)
    assert core.kinds() == {"weights": 30, "workspace": 40}
    core.loaded(weights_bytes=35)
    assert core.kinds() == {"weights": 35}


def test_what_it_left_in_the_model_needs_no_room_beside_it() -> None:
    core = loading(Core(cpu=70))
    assert core.free_bytes() == 0
    assert core.loaded(weights_bytes=60) == ["loaded model/1"]
    assert core.kinds() == {"weights": 60}


def test_a_request_that_waits_keeps_the_memory_of_its_run() -> None:
    core = Core(cpu=100)
    other = core.resident(make_spec("other", weights=0, fixed=20))
    loading(core)
    core.ask(1, rows=2)
    core.ask(2, other)
    assert core.kinds() == {"weights": 30, "workspace": 40 + 20}
    assert core.loaded(weights_bytes=30) == ["loaded model/1", "execute 1"]
    assert core.kinds() == {"weights": 30, "workspace": 20 + 20}


def test_whoever_waits_for_its_memory_goes_on_when_it_ends() -> None:
    core = Core(cpu=100)
    other = core.resident(make_spec("other", weights=0, fixed=40))
    loading(core)
    assert core.ask(1, other) == []
    assert core.loaded(weights_bytes=30) == ["loaded model/1", "execute 1"]


def test_room_is_made_for_it() -> None:
    core = Core(UNGUARDED, cpu=100)
    core.resident(make_spec("idle", weights=40))
    core.register(WARM)
    assert core.load() == ["unload idle/1 on cpu"]
    assert core.unloaded(ModelKey("idle", 1)) == ["load model/1 on cpu"]
    assert warms_up(core)


def test_what_is_left_of_it_counts_for_a_larger_request_that_came_meanwhile() -> None:
    core = Core(UNGUARDED, cpu=95)
    core.resident(make_spec("idle", weights=10))
    core.register(make_spec(weights=30, per_row=10, warmup=(WarmupRun(1),)))
    assert core.load() == ["load model/1 on cpu"]
    assert core.ask(1, rows=6) == []
    assert core.loaded(weights_bytes=30) == ["loaded model/1", "unload idle/1 on cpu"]
    assert core.unloaded(ModelKey("idle", 1)) == ["execute 1"]
    assert core.free_bytes() == 5


def test_it_is_left_out_where_others_keep_the_memory() -> None:
    core = Core(cpu=100)
    core.resident(make_spec("other", weights=40, share=PINNED))
    core.register(WARM)
    assert core.load() == ["load model/1 on cpu"]
    assert not warms_up(core)
    assert core.model().reason == "loading without its warm-up, for which there is no memory"
    assert core.kinds() == {"weights": 70}
    assert core.loaded(weights_bytes=30) == ["loaded model/1"]


def test_the_next_load_tries_it_again() -> None:
    core = Core(cpu=100)
    other = core.resident(make_spec("other", weights=40, share=PINNED))
    core.register(WARM)
    core.load()
    core.load_failed()
    core.unload(other)
    core.unloaded(other)
    core.load()
    assert warms_up(core)


def test_one_that_puts_nobody_out_comes_without_it_rather_than_not_at_all() -> None:
    core = Core(cpu=100)
    core.resident(make_spec("idle", weights=40))
    core.register(WARM)
    assert core.load(may_evict=False) == ["load model/1 on cpu"]
    assert not warms_up(core)


def test_one_that_does_not_fit_without_it_either_stands_by() -> None:
    core = Core(cpu=100)
    core.resident(make_spec("idle", weights=80))
    core.register(WARM)
    assert core.load(may_evict=False) == ["loaded model/1"]
    assert core.model().state is ModelState.UNLOADED


def test_it_is_done_again_after_its_worker_died_if_its_memory_is_free() -> None:
    core = loading(Core(cpu=100))
    core.loaded(weights_bytes=30)
    core.lose()
    core.recover()
    assert warms_up(core)
    assert core.kinds() == {"weights": 30, "workspace": 40}


def test_one_that_came_without_it_has_it_after_its_worker_died_if_its_memory_is_free() -> None:
    core = Core(cpu=100)
    core.hold(1, 40)
    loading(core)
    assert not warms_up(core)
    core.loaded(weights_bytes=30)
    core.let_go(1)
    core.lose()
    core.recover()
    assert warms_up(core)


def test_its_lease_outlives_the_worker_that_died_in_it() -> None:
    core = loading(Core(cpu=100))
    core.lose()
    assert core.kinds() == {"weights": 30, "workspace": 40}
    core.recover()
    assert warms_up(core)


@pytest.mark.parametrize(("limit", "held"), [(None, 40), (30, 0)])
def test_it_is_left_out_after_its_worker_died_if_its_memory_is_not_free(limit: int | None, held: int) -> None:
    core = loading(Core(cpu=100))
    core.loaded(weights_bytes=30)
    core.lose()
    core.share(SharePolicy(limit_bytes=limit))
    core.hold(1, held)
    core.up()
    assert not warms_up(core)
    assert core.kinds().get("workspace", 0) == 0


def test_a_request_that_waits_lends_its_memory_to_it() -> None:
    core = loading(Core(cpu=100))
    core.ask(1, rows=2)
    core.loaded(weights_bytes=30)
    core.lose()
    core.recover()
    assert warms_up(core)
    assert core.kinds() == {"weights": 30, "workspace": 40}
    assert core.loaded(weights_bytes=30) == ["execute 1"]
    assert core.kinds() == {"weights": 30, "workspace": 20}


def test_it_takes_no_more_than_the_models_own_limit() -> None:
    core = Core(cpu=100)
    core.register(WARM)
    core.share(SharePolicy(limit_bytes=30))
    core.load()
    core.up()
    assert not warms_up(core)


def test_it_is_over_for_what_comes_back_from_the_host() -> None:
    core = Core(UNGUARDED, cpu=100)
    spec = make_spec(weights=30, per_row=10, warmup=WARM.warmup, offloads=True, loading=Loading.ON_DEMAND)
    core.scheduler.state.devices["cpu"].host.capacity_bytes = 100
    core.resident(spec)
    core.hold(1, 80)
    core.offloaded()
    core.let_go(1)
    assert core.load() == ["restore model/1 on cpu"]
    assert core.kinds() == {"weights": 30}


def test_the_first_state_of_a_stepped_model_is_leased_too() -> None:
    core = Core(cpu=100)
    core.register(make_spec(weights=30, per_row=10, steps=3, state=7, warmup=(WarmupRun(2),)))
    core.load()
    assert core.kinds() == {"weights": 30, "workspace": 27}


def test_explaining_counts_it_only_where_it_would_be_done() -> None:
    core = Core(cpu=100)
    core.register(WARM)
    assert core.explain().needed_bytes == 70
    core.resident(make_spec("other", weights=40, share=PINNED))
    explanation = core.explain()
    assert (explanation.verdict, explanation.needed_bytes) == (Verdict.NOW, 40)


def warmed(core: Core, *runs: RehearsedRun, spec: ModelSpec = WARM) -> Core:
    """The model came, and its warm-up took so long."""
    core.register(spec)
    core.load()
    core.up()
    core.send(events.ModelLoaded(MODEL, 10, rehearsed=runs))
    return core


def one_second_a_row(*rows: int, row_bytes: int = 8) -> tuple[RehearsedRun, ...]:
    return tuple(RehearsedRun(each, row_bytes, seconds=float(each)) for each in rows)


def test_its_seconds_are_what_runs_of_those_sizes_are_taken_to_take() -> None:
    core = warmed(Core(), *one_second_a_row(1, 4))
    seconds = core.model().seconds
    assert [seconds.expected_s(rows) for rows in (1, 3, 4)] == pytest.approx([1.0, 3.0, 4.0])
    core.ask(1)
    core.now += 1.0
    core.finish(1)
    for request_id, within_s, told in ((2, 3.9, "fail 2: DeadlineUnmeetable"), (3, 4.1, "execute 3")):
        request = make_request(request_id, rows=4, arrived_s=core.now, deadline_s=core.now + within_s)
        assert core.arrive(request) == [told], "of four rows nothing ran but the warm-up"


def test_its_seconds_are_of_its_shape_where_rows_vary() -> None:
    varying = make_spec(inputs=(TensorSpec("x", Datatype.FP32, (-1,)),), warmup=WARM.warmup)
    core = warmed(Core(), *one_second_a_row(1, 4), RehearsedRun(1, 1000, seconds=7.0), spec=varying)
    seconds = core.model().seconds
    assert [seconds.expected_s(1, row_bytes) for row_bytes in (8, 1000)] == pytest.approx([1.0, 7.0])
    assert seconds.least_s(4, 8, core.now) == pytest.approx(4.0)
    assert seconds.least_s(4, 8, core.now + 1000.0) == 0.0, "long ago"


def test_a_run_that_was_not_timed_says_nothing_of_seconds() -> None:
    core = warmed(Core(), RehearsedRun(1, 8, peak_bytes=5))
    assert core.model().seconds.is_empty
    assert core.model().workspaces.has_learned


def test_its_seconds_do_not_count_beside_a_profile() -> None:
    profile = (ProfiledRun(1, 8, 5, None, 0.25),)
    core = warmed(Core(), *one_second_a_row(1), spec=dataclasses.replace(WARM, profiles={"cpu": profile}))
    assert core.model().seconds.expected_s(1) == 0.25


def test_its_seconds_do_not_count_beside_what_callers_runs_took() -> None:
    core = warmed(Core())
    core.ask(1)
    core.now += 0.25
    core.finish(1)
    core.lose()
    core.recover()
    assert warms_up(core)
    core.send(events.ModelLoaded(MODEL, 10, rehearsed=one_second_a_row(1)))
    assert core.model().seconds.expected_s(1) == 0.25


def test_what_was_leased_for_a_smaller_run_than_whoever_waits_needs_is_there_for_who_came_first() -> None:
    """Nobody would begin: one waits for these bytes, and the other, who has them, for its turn and one byte more."""
    core = Core.on(DeviceLimits(22, run_slots=1), UNGUARDED)
    stepped = core.resident(make_spec("a", weights=0, steps=2, state=2))
    warm = core.register(make_spec("b", weights=0, fixed=20, per_row=1, warmup=(WarmupRun(1),)))
    core.load(warm)
    assert core.free_bytes() == 1
    core.ask(1, stepped)
    core.ask(2, warm, rows=2)
    assert core.loaded(warm, weights_bytes=0) == ["loaded b/1", "starting 1"]
    core.step(stepped)
    assert core.step(stepped, done=(1,)) == ["succeed 1", "execute 2"]
