"""What finds no memory on its model's device is computed elsewhere, and has one outcome all the same."""

from moorage.domain.errors import DeadlineExceeded, MemoryExhausted
from moorage.domain.model import BatchingPolicy, Loading, ModelKey, ModelState, QueuePolicy, SharePolicy
from moorage.domain.request import StepResult
from moorage.scheduling import events
from moorage.scheduling.policy import MOORAGE
from moorage.scheduling.records import Counts
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.out_of_memory import (
    NO_MEMORY,
    UNDERSTUDY,
    carded,
    counted,
    error_of,
    on_a_card,
    on_its_fallback,
    run_out,
)
from tests.support.scheduling import MODEL, make_request, make_spec

SPLIT = BatchingPolicy(split_requests=True)


def test_what_finds_no_memory_is_computed_by_the_fallback() -> None:
    core = carded()
    on_a_card(core)
    core.ask(1)
    assert run_out(core, 1) == ["start cpu"]
    assert core.up() == [f"load {UNDERSTUDY} on cpu"]
    assert core.ask(2) == ["execute 2"], "the others are served where they were"
    assert core.loaded(UNDERSTUDY) == ["execute 1"]
    assert core.finish(3) == ["succeed 1"]
    assert core.finish(2) == ["succeed 2"]
    assert counted(core) == Counts(out_of_memory=1, oom_fallback=1)
    assert not core.scheduler.state.entries


def test_another_device_of_its_own_comes_first() -> None:
    core = carded({"cuda:0": 100, "cuda:1": 90, "cpu": 100})
    on_a_card(core, make_spec(devices=("cuda:*",), fallback="cpu"))
    core.ask(1)
    assert run_out(core, 1) == ["start cuda:1"]
    core.up("cuda:1")
    assert core.loaded(UNDERSTUDY) == ["execute 1"]
    assert run_out(core, 2) == ["start cpu"]
    core.up()
    assert core.loaded(ModelKey("model", 1, -2)) == ["execute 1"]
    assert run_out(core, 3) == ["fail 1: OutOfMemory"]
    told = "a run of 1 rows of model 'model' found no memory on cuda:0 nor on cuda:1 nor on cpu"
    assert error_of(core).message == told
    assert counted(core) == Counts(out_of_memory=3, oom_other_device=1, oom_fallback=1, oom_refused=1)


def test_an_understudy_is_there_for_the_next_one() -> None:
    core = on_its_fallback()
    core.finish(2)
    core.ask(2)
    assert run_out(core, 3) == ["execute 2"]


def test_an_understudy_makes_way_like_any_other_model() -> None:
    core = on_its_fallback()
    core.finish(2)
    core.register(make_spec("large", weights=95, devices=("cpu",)))
    assert core.load(ModelKey("large", 1)) == [f"unload {UNDERSTUDY} on cpu"]


def test_a_fallback_that_this_server_does_not_have_or_that_is_too_small_is_none() -> None:
    for capacities in ({"cuda:0": 100}, {"cuda:0": 100, "cpu": 9}):
        core = carded(capacities)
        on_a_card(core)
        core.ask(1)
        assert run_out(core, 1) == ["fail 1: OutOfMemory"]
        assert "cuda:0" in error_of(core).message


def test_a_request_is_not_counted_twice_among_what_waits_in_all_queues() -> None:
    core = Core(Limits(min_residency_s=0.0, max_waiting_rows=1), MOORAGE, **{"cuda:0": 100, "cpu": 100})
    core.resident(make_spec("pinned", weights=95, devices=("cuda:0",), share=SharePolicy(pinned=True)))
    core.register(make_spec(devices=("cuda:0",), fallback="cpu", loading=Loading.ON_DEMAND))
    assert core.ask(1) == ["start cpu"]


def test_its_deadline_and_its_caller_s_leaving_find_it_there() -> None:
    core = carded()
    on_a_card(core)
    core.arrive(make_request(1, deadline_s=5.0))
    run_out(core, 1)
    core.ask(2)
    run_out(core, 2)
    assert core.cancel(2) == []
    assert core.wait_until(5.0) == ["fail 1: DeadlineExceeded"]
    assert isinstance(error_of(core), DeadlineExceeded)
    core.up()
    assert not core.scheduler.state.entries
    assert core.model(UNDERSTUDY).queue.rows == 0


def test_pieces_go_there_one_by_one() -> None:
    core = carded()
    on_a_card(core, make_spec(devices=("cuda:0",), fallback="cpu", batching=SPLIT))
    core.ask(1, rows=2)
    assert run_out(core, 1) == ["execute 1[0:1]"]
    assert run_out(core, 2) == ["execute 1[1:2]", "start cpu"]
    core.up()
    assert core.loaded(UNDERSTUDY) == ["execute 1[0:1]"]
    assert core.finish(4) == ["succeed 1[0:1]"]
    assert core.finish(3) == ["succeed 1[1:2]"]
    assert not core.scheduler.state.split


def test_a_piece_that_is_refused_there_takes_the_others_along() -> None:
    core = carded()
    on_a_card(core, make_spec(devices=("cuda:0",), fallback="cpu", batching=SPLIT))
    core.ask(1, rows=2)
    run_out(core, 1)
    run_out(core, 2)
    run_out(core, 3)
    core.up()
    assert core.load_failed(UNDERSTUDY) == ["fail 1: OutOfMemory"]
    assert not core.scheduler.state.split
    assert not core.scheduler.state.entries


def test_a_stepped_request_begins_again_there() -> None:
    core = carded()
    on_a_card(core, make_spec(devices=("cuda:0",), fallback="cpu", steps=2, state=2))
    core.ask(1)
    core.step()
    run = core.model().run
    assert run is not None
    exhausted = StepResult(1, done=False, state_bytes=0, error=NO_MEMORY)
    assert core.send(events.StepFinished(run.run_id, (exhausted,))) == ["start cpu"]
    core.up()
    assert core.loaded(UNDERSTUDY) == ["starting 1"]
    assert core.step(UNDERSTUDY) == ["step 1"]
    assert core.step(UNDERSTUDY, done=(1,)) == ["succeed 1"]
    assert counted(core) == Counts(out_of_memory=1, oom_fallback=1)


def test_its_queue_is_bounded() -> None:
    core = carded()
    spec = make_spec(devices=("cuda:0",), fallback="cpu", queue=QueuePolicy(max_rows=1))
    on_a_card(core, spec)
    core.ask(1)
    run_out(core, 1)
    core.ask(2)
    assert run_out(core, 2) == ["fail 2: OutOfMemory"]


def test_a_model_takes_its_understudies_along_once_they_are_done() -> None:
    core = on_its_fallback()
    assert core.unload() == [f"unload {MODEL} on cuda:0"]
    assert core.unloaded() == []
    assert core.finish(2) == ["succeed 1", f"unload {UNDERSTUDY} on cpu"]
    assert core.unloaded(UNDERSTUDY) == [f"unloaded {MODEL}"]
    assert not core.scheduler.state.models


def test_an_understudy_that_is_on_its_way_goes_as_soon_as_it_is_there() -> None:
    core = carded()
    on_a_card(core)
    core.ask(1)
    run_out(core, 1)
    core.cancel(1)
    core.up()
    core.unload()
    assert core.unloaded() == []
    assert core.loaded(UNDERSTUDY) == [f"unload {UNDERSTUDY} on cpu"]
    assert core.unloaded(UNDERSTUDY) == [f"unloaded {MODEL}"]


def test_an_understudy_that_is_nowhere_goes_at_once() -> None:
    core = carded()
    on_a_card(core)
    core.ask(1)
    run_out(core, 1)
    core.up()
    core.load_failed(UNDERSTUDY)
    core.unload()
    assert core.unloaded() == [f"unloaded {MODEL}"]
    assert not core.scheduler.state.models


def test_an_understudy_has_the_standing_of_its_model_and_keeps_nothing_reserved() -> None:
    core = carded()
    on_a_card(core)
    core.share(SharePolicy(priority=2, reserved_bytes=20, pinned=True))
    core.ask(1)
    run_out(core, 1)
    assert core.model(UNDERSTUDY).share == SharePolicy(priority=2)
    core.share(SharePolicy(priority=4, limit_bytes=7))
    core.ask(2)
    run_out(core, 2)
    understudy = core.model(UNDERSTUDY)
    assert understudy.share == SharePolicy(priority=4, limit_bytes=7)
    assert understudy.semaphore.limit_bytes == 7


def test_what_has_no_room_beside_what_stays_goes_to_the_fallback_too() -> None:
    core = carded()
    core.resident(make_spec("pinned", weights=80, devices=("cuda:0",), share=SharePolicy(pinned=True)))
    on_a_card(core, make_spec(devices=("cuda:0",), fallback="cpu", per_row=8))
    assert core.ask(1, rows=1) == ["execute 1"]
    assert core.ask(2, rows=4) == [], "it waits for its turn"
    assert core.finish(1) == ["succeed 1", "start cpu"]
    core.up()
    assert core.loaded(UNDERSTUDY) == ["execute 2"]
    assert counted(core) == Counts(oom_fallback=1)


def test_a_model_that_has_no_room_beside_what_stays_is_served_by_its_fallback() -> None:
    core = carded()
    core.resident(make_spec("pinned", weights=95, devices=("cuda:0",), share=SharePolicy(pinned=True)))
    core.register(make_spec(devices=("cuda:0",), fallback="cpu", loading=Loading.ON_DEMAND))
    assert core.ask(1) == ["start cpu"]
    core.up()
    assert core.loaded(UNDERSTUDY) == ["execute 1"]
    assert core.model().state is ModelState.UNLOADED
    core.finish(1)
    assert core.ask(2) == ["execute 2"]


def test_who_keeps_the_memory_is_told_as_before_where_there_is_no_other_device() -> None:
    core = carded({"cuda:0": 100})
    core.resident(make_spec("pinned", weights=80, share=SharePolicy(pinned=True)))
    on_a_card(core, make_spec(per_row=8))
    assert core.ask(1, rows=4) == ["fail 1: MemoryExhausted"]
    error = error_of(core)
    assert isinstance(error, MemoryExhausted)
    assert error.holders[0].owner == "pinned/1"
