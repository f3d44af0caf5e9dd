from moorage.domain.model import Isolation
from moorage.scheduling.records import WorkerState
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec


def test_models_of_a_device_share_its_worker() -> None:
    core = Core()
    core.resident(make_spec("a"))
    core.register(make_spec("b"))
    assert core.load(core.register(make_spec("c"))) == ["load c/1 on cpu"]


def test_news_of_a_worker_that_nobody_knows_is_no_news() -> None:
    core = Core()
    assert [core.up("nobody"), core.lose("nobody")] == [[], []]


def test_a_death_is_counted_once() -> None:
    core = Core()
    core.resident()
    core.lose()
    core.recover()
    assert [core.lose(), core.lose()] == [[], []]
    assert core.scheduler.state.workers["cpu"].crashes == 2


def test_restarts_back_off_while_it_keeps_dying() -> None:
    core = Core(Limits(max_load_crashes=99))
    core.register()
    core.load()
    starts = []
    for _ in range(6):
        core.lose()
        assert core.scheduler.next_wake_s is not None
        before = core.now
        assert core.wait_until(core.scheduler.next_wake_s) == ["start cpu"]
        starts.append(core.now - before)
    assert starts == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]


def test_a_worker_told_to_stop_before_it_is_up_stays_stopping() -> None:
    core = Core()
    core.register(make_spec(isolation=Isolation.DEDICATED))
    core.load()
    assert core.unload() == ["stop cpu/model/1", "not loaded model/1: ModelNotReady", "unloaded model/1"]
    assert core.up("cpu/model/1") == []
    assert core.scheduler.state.workers["cpu/model/1"].state is WorkerState.STOPPING
    assert core.lose("cpu/model/1") == []


def test_a_worker_that_nobody_needs_is_not_restarted() -> None:
    core = Core.with_context(100, context_bytes=10)
    core.resident()
    core.unload()
    core.unloaded()
    core.lose()
    assert core.free_bytes() == 100
    assert core.wait_until(1000.0) == []
    assert core.load(core.register()) == ["start cpu"]


def test_a_killed_worker_is_started_again_at_once_and_not_held_against_it() -> None:
    core = Core()
    core.resident()
    slow = core.register(make_spec("slow", load_timeout_s=5.0))
    core.load(slow)
    core.arrive(make_request(1))
    assert core.wait_until(5.0) == ["kill cpu"]
    assert core.lose() == ["not loaded slow/1: LoadFailed", "start cpu"]
    assert core.scheduler.state.workers["cpu"].crashes == 0


def test_a_load_waits_for_a_worker_that_stops() -> None:
    core = Core.with_context(100, context_bytes=30)
    first = core.resident(make_spec("first", weights=40, isolation=Isolation.DEDICATED))
    second = core.register(make_spec("second", weights=60, isolation=Isolation.DEDICATED))
    core.unload(first)
    core.unloaded(first)
    assert core.load(second) == []
    assert core.lose("cpu/first/1") == ["start cpu/second/1"]
