import pytest

from moorage.domain.model import Isolation, ModelState
from moorage.scheduling.recovery import UNWELL_AFTER
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec


def test_models_come_back_by_themselves() -> None:
    core = Core()
    core.resident(make_spec("a"))
    core.resident(make_spec("b"))
    core.now = 100.0
    assert core.lose() == []
    assert core.wait_until(100.0) == ["start cpu"]
    assert core.up() == ["load a/1 on cpu"]


def test_a_newcomer_does_not_take_the_place_of_what_comes_back() -> None:
    core = Core.with_context(100, context_bytes=20)
    core.resident(make_spec(weights=50))
    core.lose()
    core.recover()
    core.loaded(weights_bytes=50)
    core.lose()
    newcomer = core.register(make_spec("newcomer", weights=40, isolation=Isolation.DEDICATED))
    assert core.load(newcomer) == []
    assert core.recover() == ["start cpu", "load model/1 on cpu"]


def test_a_load_has_its_whole_time_after_each_crash() -> None:
    core = Core(Limits(max_load_crashes=99))
    core.register(make_spec(load_timeout_s=5.0))
    core.load()
    for _ in range(3):
        core.lose()
        core.recover()
    restarted_s = core.now
    assert 0.0 < restarted_s < 5.0
    assert core.wait_until(5.0) == []
    assert core.wait_until(restarted_s + 5.0) == ["kill cpu"]


def test_one_that_comes_back_unasked_has_its_time_from_the_restart_on() -> None:
    core = Core()
    core.resident(make_spec(load_timeout_s=1.0))
    for _ in range(4):
        core.lose()
        core.recover()
        core.loaded()
    core.lose()
    assert core.model().load_deadline_s == core.now + 4.0 + 1.0
    assert core.wait_until(core.now + 3.9) == []
    assert core.model().state is ModelState.LOADING


def test_a_model_that_kills_its_worker_while_loading_is_given_up() -> None:
    core = Core(Limits(max_load_crashes=2))
    innocent = core.resident(make_spec("innocent"))
    core.register()
    core.load()
    core.lose()
    core.recover()
    core.loaded(innocent)
    assert core.lose() == ["not loaded model/1: LoadFailed"]
    assert core.model().state is ModelState.FAILED
    assert core.model(innocent).state is ModelState.LOADING


def test_waiting_work_is_answered_when_the_worker_does_not_stay_up() -> None:
    core = Core(Limits(max_attempts=99))
    core.resident()
    core.arrive(make_request(1))
    for _ in range(UNWELL_AFTER - 1):
        assert core.lose() == []
        core.recover()
        assert core.loaded() == ["execute 1"]
    assert core.lose() == ["fail 1: WorkerLost"]
    assert core.arrive(make_request(2)) == ["fail 2: ModelNotReady"]
    core.recover()
    assert core.arrive(make_request(3)) == []
    assert core.loaded() == ["execute 3"]


def test_a_long_life_makes_up_for_crashes() -> None:
    core = Core()
    core.resident()
    core.lose()
    core.recover()
    core.loaded()
    core.now += 3600.0
    core.lose()
    assert core.scheduler.state.workers["cpu"].crashes == 1


@pytest.mark.parametrize("built", [True, False])
def test_a_closing_model_ends_with_its_worker(built: bool) -> None:
    core = Core()
    core.register()
    core.load()
    core.up()
    if built:
        core.loaded()
    core.arrive(make_request(1))
    core.unload()
    settled = [] if built else ["not loaded model/1: WorkerLost"]
    assert core.lose() == [*settled, "fail 1: WorkerLost", "unloaded model/1"]
    assert core.free_bytes() == 100


def test_a_worker_that_dies_while_it_unloads_has_unloaded() -> None:
    core = Core()
    core.resident()
    core.unload()
    assert core.lose() == ["unloaded model/1"]
    assert not core.scheduler.state.workers


def test_only_the_models_of_the_lost_worker_are_lost() -> None:
    core = Core()
    shared = core.resident(make_spec("shared"))
    core.resident(make_spec(isolation=Isolation.DEDICATED))
    core.lose("cpu/model/1")
    core.recover("cpu/model/1")
    assert core.arrive(make_request(1, model=shared)) == ["execute 1"]
    assert core.arrive(make_request(2)) == []


def test_nothing_starts_on_a_dead_worker_while_its_models_are_gone_through() -> None:
    """The first model's end frees memory that the second waits for, on the same worker."""
    core = Core(cpu=100)
    first = core.resident(make_spec("first", weights=50, fixed=10))
    second = core.resident(make_spec("second", weights=0, fixed=45))
    core.arrive(make_request(1, model=first))
    core.unload(first)
    assert core.arrive(make_request(2, model=second)) == []
    assert core.lose() == ["fail 1: WorkerLost", "unloaded first/1"]
    core.recover()
    assert core.loaded(second, 0) == ["execute 2"]


def test_what_is_waited_for_comes_back_first() -> None:
    core = Core()
    core.resident(make_spec("idle"))
    busy = core.resident(make_spec("busy"))
    core.arrive(make_request(1, model=busy))
    core.lose()
    assert core.recover() == ["start cpu", "load busy/1 on cpu"]


def test_a_load_that_failed_again_and_again_has_to_wait() -> None:
    core = Core()
    core.register()
    core.load()
    core.up()
    core.load_failed()
    assert core.load() == ["load model/1 on cpu"]
    core.load_failed()
    assert core.load() == ["not loaded model/1: ModelNotReady"]
    error = core.errors()[0]
    assert (error.retry_after_s, "failed 2 times in a row" in str(error)) == (0.5, True)
    core.now += 0.5
    assert core.load() == ["load model/1 on cpu"]
    core.loaded()
    core.unload()
    core.unloaded()
    assert core.load(core.register()) == ["load model/1 on cpu"]
