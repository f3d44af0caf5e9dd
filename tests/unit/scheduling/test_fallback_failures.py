"""What a caller is told whose request failed on its model's fallback: that there is no memory only if that is why."""

import pytest

from moorage.domain.errors import ContractBroken, InferenceFailed, MoorageError
from moorage.scheduling import events
from moorage.scheduling.records import Counts
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from tests.support.out_of_memory import UNDERSTUDY, carded, counted, error_of, on_a_card, on_its_fallback, run_out
from tests.support.scheduling import UNGUARDED, make_spec


def test_where_the_fallback_can_t_be_had_the_caller_is_told_what_was_tried() -> None:
    core = carded()
    on_a_card(core)
    core.ask(1)
    run_out(core, 1)
    core.up()
    assert core.load_failed(UNDERSTUDY) == ["fail 1: OutOfMemory"]
    told = "a run of 1 rows of model 'model' found no memory on cuda:0; on cpu: failed to load model 'model': broken"
    assert error_of(core).message == told
    core.ask(2)
    core.now += 100.0
    assert run_out(core, 2) == [f"load {UNDERSTUDY} on cpu"], "it is tried again"


@pytest.mark.parametrize("error", [InferenceFailed("model", "id"), ContractBroken("model", "id", "no rows")])
def test_what_goes_wrong_there_for_another_reason_than_memory_is_told_as_it_is(error: MoorageError) -> None:
    core = on_its_fallback()
    core.send(events.RunFailed(2, error))
    assert error_of(core) is error
    assert counted(core) == Counts(out_of_memory=1, oom_fallback=1)


def test_who_kills_workers_there_is_told_so() -> None:
    core = on_its_fallback()
    for _ in range(2):
        core.lose()
        core.recover()
        assert core.loaded(UNDERSTUDY) == ["execute 1"]
    assert core.lose()[0] == "fail 1: WorkerLost"
    assert counted(core).oom_refused == 0


def test_what_turns_out_too_large_for_the_fallback_found_no_memory_anywhere() -> None:
    core = carded()
    on_a_card(core, make_spec(devices=("cuda:0",), fallback="cpu", per_row=10))
    core.ask(1, rows=4)
    run_out(core, 1)
    core.up()
    assert core.loaded(UNDERSTUDY, weights_bytes=70) == [f"unload {UNDERSTUDY} on cpu"]
    core.unloaded(UNDERSTUDY)
    assert "found no memory on cuda:0; on cpu: " in error_of(core).message
    assert counted(core).oom_refused == 1


def test_a_model_that_closes_ends_with_its_worker_though_its_understudy_is_still_there() -> None:
    """Its weights were on their way to the host. It is forgotten when its understudy is."""
    core = carded()
    limits = DeviceLimits(100, host_bytes=100, run_slots=8)
    core.scheduler = Scheduler({"cuda:0": limits, "cpu": limits}, UNGUARDED)
    on_a_card(core, make_spec(devices=("cuda:0",), fallback="cpu", weights=60, offloads=True))
    core.ask(1)
    run_out(core, 1)
    core.up()
    core.loaded(UNDERSTUDY)
    core.finish(2)
    other = core.register(make_spec("other", devices=("cuda:0",), weights=60))
    assert core.load(other) == ["offload model/1 on cuda:0"]
    assert core.unload() == []
    assert f"unload {UNDERSTUDY} on cpu" in core.lose("cuda:0")
    assert core.unloaded(UNDERSTUDY) == ["unloaded model/1"]
