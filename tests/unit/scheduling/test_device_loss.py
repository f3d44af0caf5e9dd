"""A run under which the device failed: its worker can compute nothing any more, whoever asks."""

from moorage.domain.errors import DeviceLost, MoorageError, WorkerLost
from moorage.domain.model import ModelState
from moorage.scheduling import events
from moorage.scheduling.recovery import UNWELL_AFTER
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import make_spec

CULPRIT = 8


def fail_runs_of_culprit(core: Core) -> list[type[MoorageError]]:
    """Let runs end, those of the culprit with the device, until none is under way; who was refused."""
    refused: list[MoorageError] = []
    while core.scheduler.state.runs:
        run = next(iter(core.scheduler.state.runs.values()))
        if any(entry.request.request_id == CULPRIT for entry in run.entries):
            core.send(events.RunFailed(run.run_id, DeviceLost("model", "id")))
            refused += core.errors()
            core.lose()
            core.recover()
            core.loaded()
        else:
            core.finish(run.run_id)
    return [type(error) for error in refused]


def test_of_a_batch_only_who_is_at_fault_fails_after_two_losses() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8))
    core.ask(1)
    for request_id in range(2, 9):
        core.ask(request_id)
    core.finish(1)
    assert fail_runs_of_culprit(core) == [DeviceLost]
    assert core.scheduler.state.workers["cpu"].crashes == 2 < UNWELL_AFTER
    assert not core.scheduler.state.entries


def test_its_worker_is_sent_nothing_more() -> None:
    core = Core()
    core.resident()
    core.resident(make_spec("other"))
    core.ask(1)
    decided = core.send(events.RunFailed(1, DeviceLost("model", "id")))
    assert "fail 1: DeviceLost" in decided
    assert any(action.startswith("kill") for action in decided)
    assert not [each for each in core.ask(2) if each.startswith("execute")]


def test_who_was_beside_others_is_tried_again_and_so_are_they() -> None:
    core = Core.on(DeviceLimits(100, run_slots=2))
    core.resident()
    other = core.resident(make_spec("other"))
    core.ask(1)
    core.ask(2, model=other)
    for run_id in (1, 2):
        core.send(events.RunFailed(run_id, DeviceLost("model", "id")))
        assert core.errors() == []
    assert {entry.request.request_id for entry in core.scheduler.state.entries.values()} == {1, 2}


def test_it_is_not_blamed_on_what_was_loading_meanwhile() -> None:
    core = Core()
    core.resident()
    victim = core.register(make_spec("victim"))
    core.load(victim)
    core.ask(1)
    core.send(events.RunFailed(1, DeviceLost("model", "id")))
    core.lose()
    assert core.model(victim).load_crashes == 0
    assert core.model(victim).state is not ModelState.FAILED


def test_who_loses_the_device_beside_others_every_time_is_given_up() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8))
    given_up = None
    core.ask(1)
    while given_up is None:
        run = next(iter(core.scheduler.state.runs.values()))
        core.scheduler.state.workers["cpu"].device_lost = True
        core.send(events.RunFailed(run.run_id, DeviceLost("model", "id")))
        given_up = next(iter(core.errors()), None)
        core.lose()
        core.recover()
        core.loaded()
    assert isinstance(given_up, WorkerLost)
