import pytest

from moorage.domain.model import Isolation, Loading, ModelKey, ModelSpec, ModelState, SharePolicy
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_request, make_spec

PINNED = SharePolicy(pinned=True)


def test_a_load_leases_then_starts_its_worker_then_builds() -> None:
    core = Core.with_context(100, context_bytes=20)
    core.register(make_spec(weights=30))
    assert core.load() == ["start cpu"]
    assert core.free_bytes() == 50
    assert core.up() == ["load model/1 on cpu"]
    assert core.loaded(weights_bytes=35) == ["loaded model/1"]
    assert core.free_bytes() == 45
    assert core.model().state is ModelState.RESIDENT


@pytest.mark.parametrize(
    ("weights", "hint", "measured", "held"), [(30, 0, 20, 30), (30, 0, 40, 40), (None, 30, 20, 20), (None, 30, 40, 40)]
)
def test_what_is_measured_corrects_what_was_guessed_but_not_what_was_declared(
    weights: int | None, hint: int, measured: int, held: int
) -> None:
    core = Core(cpu=100)
    core.register(make_spec(weights=weights, hint=hint))
    core.load()
    core.up()
    core.loaded(weights_bytes=measured)
    assert core.free_bytes() == 100 - held


def test_bytes_that_were_guessed_too_many_go_to_who_waits_for_them() -> None:
    core = Core(cpu=100)
    waiting = core.resident(make_spec("waiting", weights=0, fixed=40))
    core.resident(make_spec("runner", weights=0, fixed=40))
    core.register(make_spec(weights=None, hint=50))
    core.arrive(make_request(1, model=ModelKey("runner", 1)))
    core.load()
    assert core.arrive(make_request(2, model=waiting)) == []
    assert core.loaded(weights_bytes=10) == ["loaded model/1", "execute 2"]


def test_loading_what_is_there_or_on_its_way_settles_once() -> None:
    core = Core()
    core.register()
    assert [core.load(), core.load(), core.up()] == [["start cpu"], [], ["load model/1 on cpu"]]
    assert core.loaded() == ["loaded model/1"]
    assert core.load() == ["loaded model/1"]


def test_loading_what_nobody_knows() -> None:
    assert Core().load() == ["not loaded model/1: ModelNotFound"]


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (make_spec(devices=("tpu",)), "LoadFailed"),
        (make_spec(weights=101), "ModelTooLarge"),
        (make_spec(weights=90, fixed=5, per_row=6), "ModelTooLarge"),
    ],
)
def test_what_can_never_fit_is_refused_at_once(spec: ModelSpec, error: str) -> None:
    core = Core(cpu=100)
    core.register(spec)
    assert core.load() == [f"not loaded model/1: {error}"]
    assert core.model().state is ModelState.FAILED
    assert core.arrive(make_request(1)) == ["fail 1: ModelNotReady"]


def test_a_worker_of_its_own_takes_memory_too() -> None:
    core = Core.with_context(100, context_bytes=40)
    core.register(make_spec(weights=61, isolation=Isolation.DEDICATED))
    assert core.load() == ["not loaded model/1: ModelTooLarge"]


def test_what_does_not_fit_beside_those_that_stay_may_be_tried_again() -> None:
    core = Core(cpu=100)
    other = core.resident(make_spec("other", weights=60, share=PINNED))
    core.register(make_spec(weights=50))
    assert core.load() == ["not loaded model/1: MemoryExhausted"]
    assert core.model().state is ModelState.UNLOADED
    core.unload(other)
    assert core.load() == []
    assert core.unloaded(other) == ["unloaded other/1", "load model/1 on cpu"]


def test_a_worker_that_finds_no_memory_for_itself_is_not_waited_for() -> None:
    core = Core.with_context(100, context_bytes=30)
    core.resident(make_spec("other", weights=50, share=PINNED))
    core.register(make_spec(weights=10, isolation=Isolation.DEDICATED))
    assert core.load() == ["not loaded model/1: MemoryExhausted"]
    assert core.free_bytes() == 20


def test_a_load_waits_for_a_run_to_give_back_its_memory() -> None:
    core = Core(cpu=100)
    runner = core.resident(make_spec("runner", weights=0, fixed=80))
    core.register(make_spec(weights=50))
    core.arrive(make_request(1, model=runner))
    assert core.load() == []
    assert core.finish(1) == ["succeed 1", "load model/1 on cpu"]


def test_a_load_short_of_memory_keeps_later_ones_behind_it() -> None:
    core = Core(cpu=100)
    runner = core.resident(make_spec("runner", weights=0, fixed=60))
    large, small = core.register(make_spec("large", weights=50)), core.register(make_spec("small", weights=10))
    core.arrive(make_request(1, model=runner))
    assert [core.load(large), core.load(small)] == [[], []]
    assert core.finish(1) == ["succeed 1", "load large/1 on cpu"]
    assert core.loaded(large, 50) == ["loaded large/1", "load small/1 on cpu"]


def test_one_that_comes_back_is_not_kept_behind_it() -> None:
    core = Core(cpu=100)
    core.resident(make_spec(weights=10))
    runner = core.resident(make_spec("runner", weights=0, fixed=60, isolation=Isolation.DEDICATED))
    large = core.register(make_spec("large", weights=50))
    core.arrive(make_request(1, model=runner))
    assert core.load(large) == []
    core.lose("cpu")
    assert core.recover("cpu") == ["start cpu", "load model/1 on cpu"]


def test_a_worker_builds_one_model_at_a_time_in_order() -> None:
    core = Core()
    keys = [core.register(make_spec(name)) for name in "abc"]
    for key in keys:
        core.load(key)
    assert core.up() == ["load a/1 on cpu"]
    assert core.load_failed(keys[0]) == ["not loaded a/1: LoadFailed", "load b/1 on cpu"]
    assert core.loaded(keys[1]) == ["loaded b/1", "load c/1 on cpu"]


def test_a_failed_load_fails_who_waited_and_can_be_tried_again() -> None:
    core = Core()
    core.register()
    core.load()
    core.up()
    core.arrive(make_request(1))
    assert core.load_failed() == ["not loaded model/1: LoadFailed", "fail 1: LoadFailed"]
    assert core.model().reason == "failed to load model 'model': broken"
    assert core.free_bytes() == 100
    assert core.load() == ["load model/1 on cpu"]


def test_a_model_larger_than_it_said_is_loaded_again_with_room_for_it() -> None:
    core = Core(UNGUARDED)
    other = core.resident(make_spec("other", weights=60))
    core.register(make_spec(weights=10))
    core.load()
    core.arrive(make_request(1))
    assert core.loaded(weights_bytes=41) == ["unload model/1 on cpu"]
    assert core.arrive(make_request(2)) == []
    assert core.unloaded() == ["unload other/1 on cpu"]
    assert core.unloaded(other) == ["load model/1 on cpu"]
    assert core.free_bytes() == 59
    assert core.loaded(weights_bytes=41) == ["loaded model/1", "execute 1 2"]


def test_a_model_larger_than_it_said_is_thrown_out_for_good_where_the_others_stay() -> None:
    core = Core(cpu=100)
    core.resident(make_spec("other", weights=60, share=PINNED))
    core.register(make_spec(weights=10))
    core.load()
    core.arrive(make_request(1))
    assert core.loaded(weights_bytes=41) == [
        "not loaded model/1: MemoryExhausted",
        "fail 1: MemoryExhausted",
        "unload model/1 on cpu",
    ]
    assert core.arrive(make_request(2)) == ["fail 2: ModelNotReady"]
    assert core.load() == []
    assert core.unloaded() == ["not loaded model/1: MemoryExhausted"]
    assert core.model().state is ModelState.FAILED
    assert "as measured" in core.model().reason
    assert core.load() == ["not loaded model/1: MemoryExhausted"]


def test_requests_that_no_longer_fit_beside_the_measured_weights_are_told() -> None:
    core = Core(cpu=100)
    core.register(make_spec(weights=None, hint=10, per_row=20))
    core.load()
    core.arrive(make_request(1, rows=4))
    core.arrive(make_request(2, rows=3))
    core.up()
    assert core.loaded(weights_bytes=30) == ["loaded model/1", "fail 1: ModelTooLarge", "execute 2"]


def test_a_model_on_demand_is_loaded_by_its_first_request() -> None:
    core = Core()
    core.register(make_spec(loading=Loading.ON_DEMAND))
    assert core.arrive(make_request(1)) == ["start cpu"]
    assert core.arrive(make_request(2)) == []
    assert core.up() == ["load model/1 on cpu"]
    assert core.loaded() == ["execute 1 2"]


def test_a_load_that_does_not_begin_in_time_is_given_up() -> None:
    core = Core()
    core.register(make_spec(load_timeout_s=5.0))
    core.load()
    assert core.wait_until(5.0) == ["not loaded model/1: LoadFailed"]
    assert core.up() == []


def test_a_worker_that_builds_too_long_is_killed_and_only_then_the_memory_is_free() -> None:
    core = Core(cpu=100)
    core.register(make_spec(weights=60, load_timeout_s=5.0))
    core.load()
    core.up()
    assert core.wait_until(5.0) == ["kill cpu"]
    assert core.loaded(weights_bytes=60) == []
    assert core.load_failed() == []
    assert core.free_bytes() == 40
    assert core.lose() == ["not loaded model/1: LoadFailed"]
    assert core.free_bytes() == 100


def test_a_load_is_killed_once_however_many_moments_it_is_late_by() -> None:
    core = Core()
    core.register(make_spec(load_timeout_s=5.0))
    core.load()
    core.up()
    core.loaded()
    core.lose()
    core.recover()
    assert core.wait_until(20.0) == ["kill cpu"]
    assert core.wait_until(30.0) == []


def test_a_load_goes_where_it_can_fit() -> None:
    core = Core(cpu=20, gpu=100)
    core.resident(make_spec("other", weights=90, devices=("gpu",), share=PINNED))
    core.register(make_spec(weights=50, devices=("*",)))
    assert core.load() == ["not loaded model/1: MemoryExhausted"]


@pytest.mark.parametrize("requested", [True, False])
def test_whoever_asked_for_a_load_waits_its_time_for_memory_and_requests_wait_on(requested: bool) -> None:
    core = Core(cpu=100)
    runner = core.resident(make_spec("runner", weights=0, fixed=80))
    core.ask(1, runner)
    core.register(make_spec(weights=50, load_timeout_s=5.0))
    core.load()
    if requested:
        core.ask(2)
    assert core.wait_until(5.0) == ["not loaded model/1: MemoryExhausted"]
    assert core.finish(1) == ["succeed 1"] + (["load model/1 on cpu"] if requested else [])


def test_a_restore_that_waits_too_long_for_memory_is_not_waited_for_any_more() -> None:
    core = Core.on(DeviceLimits(100, host_bytes=100, run_slots=8), UNGUARDED)
    core.resident(make_spec(weights=60, offloads=True, load_timeout_s=5.0))
    runner = core.resident(make_spec("runner", weights=0, fixed=80))
    assert core.ask(1, runner) == ["offload model/1 on cpu"]
    assert core.offloaded() == ["execute 1"]
    assert core.load() == []
    assert core.wait_until(5.0)[0].startswith("not loaded model/1")
    assert core.finish(1) == ["succeed 1"]
    assert core.model().state is ModelState.OFFLOADED
