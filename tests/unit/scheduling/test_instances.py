"""Models that may have several runs at once: one in each of their instances."""

from moorage.domain.model import (
    Isolation,
    ModelState,
    Preemption,
    PreemptionPolicy,
    SharePolicy,
)
from moorage.scheduling import events
from tests.support.core import Core
from tests.support.instances import with_instances
from tests.support.scheduling import MODEL, make_request, make_spec

KILLABLE = PreemptionPolicy(Preemption.KILL)


def instances_of(core: Core) -> list[int]:
    return [run.instance for run in core.model().runs]


def test_as_many_runs_go_on_at_once_as_there_are_instances() -> None:
    core = with_instances(2)
    assert core.ask(1) == ["execute 1"]
    assert core.ask(2) == ["execute 2"]
    assert core.ask(3) == []
    assert instances_of(core) == [0, 1]
    assert core.finish(1) == ["succeed 1", "execute 3"]
    assert instances_of(core) == [1, 0]
    assert core.finish(3) == ["succeed 3"]
    assert core.finish(2) == ["succeed 2"]
    assert core.ask(4) == ["execute 4"]
    assert instances_of(core) == [0]


def test_those_that_come_together_begin_together() -> None:
    core = with_instances(3)
    assert core.send(events.RequestsArrived(tuple(make_request(number) for number in (1, 2, 3, 4)))) == [
        "execute 1",
        "execute 2",
        "execute 3",
    ]


def test_a_model_that_says_nothing_has_one_run_at_a_time() -> None:
    core = with_instances(1)
    core.ask(1)
    assert core.ask(2) == []


def test_each_run_takes_a_slot() -> None:
    core = with_instances(3, slots=2)
    core.ask(1)
    assert core.ask(2) == ["execute 2"]
    assert core.ask(3) == []
    assert core.finish(1) == ["succeed 1", "execute 3"]


def test_slots_are_given_out_in_order_among_models() -> None:
    core = with_instances(2, slots=2)
    other = core.resident(make_spec("other", max_batch_size=1))
    core.now = 3.0
    mine = [make_request(number, arrived_s=float(number)) for number in (1, 2)]
    theirs = make_request(3, model=other, arrived_s=3.0)
    assert core.send(events.RequestsArrived((*mine, theirs))) == ["execute 1", "execute 2"]
    assert core.finish(2) == ["succeed 2", "execute 3"]


def test_the_last_slot_goes_to_higher_priority() -> None:
    core = with_instances(2, slots=2)
    high = core.resident(make_spec("high", max_batch_size=1, share=SharePolicy(priority=1)))
    mine = [make_request(number) for number in (1, 2)]
    urgent = make_request(3, model=high)
    assert core.send(events.RequestsArrived((*mine, urgent))) == ["execute 3", "execute 1"]


def test_a_further_run_puts_nobody_out_and_begins_when_there_is_memory() -> None:
    core = with_instances(2, fixed=30)
    idle = core.resident(make_spec("idle", weights=40))
    assert core.ask(1) == ["execute 1"]
    assert core.ask(2) == []
    assert core.model(idle).state is ModelState.RESIDENT
    assert core.finish(1) == ["succeed 1", "execute 2"]
    assert core.ask(3) == []
    core.unload(idle)
    assert core.unloaded(idle)[-1:] == ["execute 3"]


def test_the_first_run_has_room_made_for_it_as_ever() -> None:
    core = with_instances(2, fixed=30)
    idle = core.resident(make_spec("idle", weights=70))
    assert core.ask(1) == [f"unload {idle} on cpu"]


def test_others_pass_a_further_run_that_finds_no_memory() -> None:
    core = with_instances(2, fixed=30)
    small = core.resident(make_spec("small", weights=40, fixed=5))
    core.ask(1)
    assert core.ask(2) == []
    assert core.ask(3, small) == ["execute 3"]


def test_a_models_own_limit_holds_for_its_runs_together() -> None:
    core = with_instances(3, fixed=10, share=SharePolicy(limit_bytes=20))
    for number in (1, 2, 3):
        core.ask(number)
    assert instances_of(core) == [0, 1]


def test_it_is_put_out_only_when_all_its_runs_have_ended() -> None:
    core = with_instances(2, weights=60)
    urgent = core.register(make_spec("urgent", weights=60, share=SharePolicy(priority=1)))
    for number in (1, 2, 3):
        core.ask(number)
    assert core.load(urgent) == []
    assert core.finish(1) == ["succeed 1"], "no other run begins"
    assert core.finish(2) == ["succeed 2", f"unload {MODEL} on cpu"]


def test_it_is_unloaded_when_all_its_runs_have_ended() -> None:
    core = with_instances(2)
    for number in (1, 2, 3):
        core.ask(number)
    assert core.unload() == []
    assert core.finish(2) == ["succeed 2", "execute 3"]
    assert core.finish(3) == ["succeed 3"]
    assert core.finish(1) == ["succeed 1", f"unload {MODEL} on cpu"]


def test_each_run_fails_for_itself() -> None:
    core = with_instances(2)
    core.ask(1)
    core.ask(2)
    assert core.fail(2) == ["fail 2: InferenceFailed"]
    assert core.fail(1) == ["fail 1: InferenceFailed"]
    assert core.ask(3) == ["execute 3"]


def test_what_was_under_way_when_the_worker_died_is_tried_one_by_one() -> None:
    """If one of them kills workers, the other is not to be taken along until it is given up."""
    core = with_instances(2)
    core.ask(1)
    core.ask(2)
    core.lose()
    core.recover()
    assert core.loaded() == ["execute 1"]
    assert core.ask(3) == []
    core.lose()
    core.recover()
    assert core.loaded() == ["execute 1"]
    assert core.lose()[0] == "fail 1: WorkerLost"
    core.recover()
    assert core.loaded() == ["execute 2"]
    assert core.finish(5) == ["succeed 2", "execute 3"]
    assert core.ask(4) == ["execute 4"]


def test_each_request_has_one_outcome_when_the_worker_dies_for_good() -> None:
    core = with_instances(2, isolation=Isolation.DEDICATED, preemption=KILLABLE)
    outcomes = [*core.ask(1), *core.ask(2)]
    worker = core.model().worker or ""
    for _ in range(6):
        if not core.model().queue and not core.model().runs:
            break
        outcomes += core.lose(worker)
        if core.model().worker is not None:
            outcomes += core.recover(worker) + core.loaded()
    assert sorted(word for word in outcomes if word.startswith("fail")) == ["fail 1: WorkerLost", "fail 2: WorkerLost"]


def test_its_process_is_killed_for_all_that_it_holds_unless_one_of_its_runs_is_too_urgent() -> None:
    core = with_instances(2, weights=20, fixed=20, isolation=Isolation.DEDICATED, preemption=KILLABLE)
    worker = core.model().worker
    urgent = core.register(make_spec("urgent", weights=90, share=SharePolicy(priority=2)))
    core.ask(1, priority=5)
    core.ask(2, priority=1)
    assert core.load(urgent) == []
    assert core.finish(2) == ["succeed 2", f"kill {worker}"]
    assert core.lose(worker or "") == ["start cpu"]
    assert core.model().counts.preemptions == 1


def test_all_its_runs_give_way_when_its_process_is_killed() -> None:
    core = with_instances(2, weights=20, fixed=20, isolation=Isolation.DEDICATED, preemption=KILLABLE)
    worker = core.model().worker
    urgent = core.register(make_spec("urgent", weights=90, share=SharePolicy(priority=1)))
    core.ask(1)
    core.ask(2)
    assert core.load(urgent) == [f"kill {worker}"]
    assert core.lose(worker or "") == ["start cpu"]
    core.up()
    core.loaded(urgent, 90)
    assert core.model().counts.preemptions == 2
    core.unload(urgent)
    core.unloaded(urgent)
    core.up(core.model().worker or "")
    assert core.loaded() == ["execute 1", "execute 2"]
