import pytest

from moorage.domain.model import Isolation
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_request, make_spec


def test_unloading_what_nobody_knows_is_done_already() -> None:
    assert Core().unload() == ["unloaded model/1"]


def test_a_model_that_is_not_loaded_is_forgotten_at_once() -> None:
    core = Core()
    core.register()
    assert core.unload() == ["unloaded model/1"]
    assert core.arrive(make_request(1)) == ["fail 1: ModelNotFound"]


def test_accepted_work_is_finished_and_new_work_refused() -> None:
    core = Core()
    core.resident()
    core.arrive(make_request(1))
    core.arrive(make_request(2))
    assert core.unload() == []
    assert core.arrive(make_request(3)) == ["fail 3: ModelNotReady"]
    assert core.load() == ["not loaded model/1: ModelNotReady"]
    assert core.finish(1) == ["succeed 1", "execute 2"]
    assert core.fail(2) == ["fail 2: InferenceFailed", "unload model/1 on cpu"]
    assert core.free_bytes() == 90
    assert core.unload() == []
    assert core.unloaded() == ["unloaded model/1"]
    assert core.free_bytes() == 100


@pytest.mark.parametrize("leaves", ["cancel", "expire"])
def test_the_last_to_leave_lets_the_model_go(leaves: str) -> None:
    core = Core()
    core.register()
    core.load()
    core.up()
    core.arrive(make_request(1, deadline_s=5.0))
    core.unload()
    if leaves == "cancel":
        core.cancel(1)
    else:
        core.wait_until(5.0)
    assert core.loaded() == ["loaded model/1", "unload model/1 on cpu"]


def test_a_load_that_has_not_begun_is_called_off() -> None:
    core = Core()
    core.register()
    core.load()
    core.arrive(make_request(1))
    assert core.unload() == ["not loaded model/1: ModelNotReady", "fail 1: ModelNotReady", "unloaded model/1"]
    assert core.free_bytes() == 100


def test_one_that_is_being_built_serves_what_it_accepted_first() -> None:
    core = Core()
    core.register()
    core.load()
    core.up()
    core.arrive(make_request(1))
    assert core.unload() == []
    assert core.loaded() == ["loaded model/1", "execute 1"]
    assert core.finish(1) == ["succeed 1", "unload model/1 on cpu"]


def test_one_that_fails_to_build_is_forgotten() -> None:
    core = Core()
    core.register()
    core.load()
    core.up()
    core.unload()
    assert core.load_failed() == ["not loaded model/1: LoadFailed", "unloaded model/1"]


def test_unloading_one_that_is_thrown_out_anyhow() -> None:
    core = Core(cpu=100)
    core.register()
    core.load()
    core.up()
    core.loaded(weights_bytes=101)
    assert core.unload() == []
    assert core.unloaded() == ["unloaded model/1"]
    assert core.unloaded() == []


def test_a_worker_of_its_own_goes_with_its_model() -> None:
    core = Core.with_context(100, context_bytes=20)
    core.resident(make_spec(isolation=Isolation.DEDICATED))
    assert core.unload() == ["unload model/1 on cpu/model/1"]
    assert core.unloaded() == ["stop cpu/model/1", "unloaded model/1"]
    assert core.free_bytes() == 80
    assert core.lose("cpu/model/1") == []
    assert core.free_bytes() == 100
    assert not core.scheduler.state.workers


def test_one_loaded_again_meanwhile_gets_a_new_worker() -> None:
    core = Core()
    core.resident(make_spec(isolation=Isolation.DEDICATED))
    core.unload()
    core.unloaded()
    core.register(make_spec(isolation=Isolation.DEDICATED))
    assert core.load() == []
    assert core.lose("cpu/model/1") == ["start cpu/model/1"]


def test_a_load_waits_for_the_one_that_leaves_rather_than_put_another_out() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("idle", weights=40))
    leaving = core.resident(make_spec("leaving", weights=50))
    core.unload(leaving)
    core.register(make_spec(weights=60))
    assert core.load() == []
    assert core.unloaded(leaving) == ["unloaded leaving/1", "load model/1 on cpu"]


def test_a_closing_model_that_waits_for_memory_holds_nobody_up_and_is_let_go() -> None:
    """Its last request can't be had, and neither can that of the one before it in line."""
    core = Core(cpu=100)
    runner = core.resident(make_spec("runner", weights=0, fixed=80))
    closing = core.resident(make_spec("closing", weights=10, fixed=40))
    core.arrive(make_request(1, model=runner))
    assert core.arrive(make_request(2, model=closing)) == []
    core.unload(closing)
    assert core.cancel(2) == ["unload closing/1 on cpu"]


def test_an_unload_that_never_ends_costs_the_worker_its_life() -> None:
    core = Core()
    core.resident()
    core.unload()
    assert core.wait_until(29.0) == []
    assert core.wait_until(31.0) == ["kill cpu"]
    assert core.wait_until(90.0) == []
    assert core.lose() == ["unloaded model/1"]
    assert core.free_bytes() == 100


def test_an_unload_that_ended_in_time_is_not_chased() -> None:
    core = Core()
    core.resident()
    core.unload()
    core.unloaded()
    assert core.wait_until(90.0) == []


def test_one_that_is_unloaded_while_its_worker_is_killed_goes_with_it() -> None:
    core = Core()
    core.resident()
    slow = core.register(make_spec("slow", load_timeout_s=5.0))
    core.load(slow)
    assert core.wait_until(5.0) == ["kill cpu"]
    assert core.unload() == []
    assert core.lose() == ["not loaded slow/1: LoadFailed", "unloaded model/1"]
