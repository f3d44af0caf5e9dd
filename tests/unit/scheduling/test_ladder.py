"""A run that finds no memory though the ledger had it is tried again whole, once others have made way."""

from moorage.domain.model import Isolation, ModelKey, SharePolicy
from moorage.scheduling.ceilings import FIRST_HOLD_S, MOST_HOLD_S, Spacing
from moorage.scheduling.records import Counts
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.instances import with_instances
from tests.support.out_of_memory import carded, counted, run_out
from tests.support.scheduling import UNGUARDED, make_spec


def beside(core: Core, name: str = "idle", *, priority: int = 3, isolation: Isolation = Isolation.SHARED) -> ModelKey:
    """A model that nobody asks for."""
    return core.resident(make_spec(name, share=SharePolicy(priority=priority), isolation=isolation))


def test_idle_models_make_way_and_the_run_is_tried_again_whole() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(max_batch_size=8))
    idle = beside(core)
    core.ask(1)
    core.ask(2)
    core.ask(3)
    core.finish(1)
    assert run_out(core, 2) == [f"unload {idle} on cpu"]
    assert core.ask(4) == [], "nobody runs before they have left"
    assert core.unloaded(idle) == ["execute 2 3"]
    assert core.finish(3) == ["succeed 2 3", "execute 4"]
    assert counted(core) == Counts(out_of_memory=1, oom_evicted=1)


def test_it_is_halved_where_that_was_not_enough() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(max_batch_size=8))
    idle = beside(core)
    for number in (1, 2, 3):
        core.ask(number)
    core.finish(1)
    run_out(core, 2)
    core.unloaded(idle)
    assert run_out(core, 3) == ["execute 2"]
    assert counted(core) == Counts(out_of_memory=2, oom_evicted=1, oom_halved=1)


def test_as_many_make_way_as_free_what_it_was_to_take_the_least_worth_first() -> None:
    core = Core(UNGUARDED, cpu=200)
    core.resident(make_spec(fixed=15))
    high = beside(core, "high", priority=2)
    beside(core, "pinned")
    core.share(SharePolicy(pinned=True), ModelKey("pinned", 1))
    low, same, other = beside(core, "low", priority=5), beside(core, "same"), beside(core, "other")
    core.ask(9, same)
    core.finish(1, peak_bytes=0)
    core.ask(1)
    assert run_out(core, 2) == [f"unload {low} on cpu", f"unload {other} on cpu"]
    assert core.model(high).weights is not None


def test_nobody_makes_way_who_lives_in_another_process_on_the_host() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(isolation=Isolation.DEDICATED))
    beside(core)
    core.ask(1)
    assert run_out(core, 1) == ["fail 1: OutOfMemory"]


def test_on_a_card_it_does_not_matter_in_which_process() -> None:
    core = carded({"cuda": 100})
    core.resident(make_spec(isolation=Isolation.DEDICATED))
    idle = beside(core)
    core.ask(1)
    assert run_out(core, 1) == [f"unload {idle} on cuda"]


def test_nobody_makes_way_who_came_lately_is_busy_or_of_higher_priority() -> None:
    core = Core(Limits(min_residency_s=5.0))
    core.resident(make_spec(max_batch_size=8))
    beside(core, "high", priority=1)
    busy = beside(core, "busy")
    core.now = 10.0
    core.ask(1, busy)
    core.ask(2)
    beside(core, "late")
    assert run_out(core, 2) == ["fail 2: OutOfMemory"]


def test_others_make_way_once_and_then_ever_more_seldom() -> None:
    spacing = Spacing()
    assert spacing.allows(0.0)
    spacing.note(0.0)
    assert not spacing.allows(FIRST_HOLD_S - 0.1)
    spacing.note(FIRST_HOLD_S)
    assert not spacing.allows(3 * FIRST_HOLD_S - 0.1)
    now = 3 * FIRST_HOLD_S
    for _ in range(20):
        assert spacing.allows(now)
        spacing.note(now)
        now += MOST_HOLD_S
    now += 2 * MOST_HOLD_S
    spacing.note(now)
    assert spacing.allows(now + FIRST_HOLD_S)


def test_a_lost_worker_of_those_who_make_way_holds_up_nobody() -> None:
    core = carded({"cuda": 100})
    core.resident(make_spec())
    idle = beside(core, isolation=Isolation.DEDICATED)
    core.ask(1)
    run_out(core, 1)
    assert core.lose(f"cuda/{idle}")[:1] == ["execute 1"]


def test_those_who_never_leave_hold_it_up_for_a_while_only() -> None:
    core = Core(Limits(min_residency_s=0.0, max_unload_s=3.0))
    core.resident(make_spec())
    beside(core)
    core.ask(1)
    run_out(core, 1)
    assert core.wait_until(3.0) == ["kill cpu"]
    assert core.lose() == ["start cpu"]


def both_running() -> Core:
    """Two runs of one request each beside each other, and another that waits."""
    core = with_instances(2)
    for number in (1, 2, 3):
        core.ask(number)
    return core


def test_one_that_had_company_is_tried_again_whole_and_alone() -> None:
    core = both_running()
    assert run_out(core, 1) == [], "it waits until the other has ended"
    assert core.finish(2) == ["succeed 2", "execute 1"]
    assert core.ask(4) == [], "nobody joins it"
    assert core.finish(3) == ["succeed 1", "execute 3"]
    assert counted(core) == Counts(out_of_memory=1, oom_alone=1)


def test_so_are_both_where_both_found_none() -> None:
    core = both_running()
    assert run_out(core, 1) == []
    assert run_out(core, 2) == ["execute 1"]
    assert core.finish(3) == ["succeed 1", "execute 2"]
    assert core.finish(4) == ["succeed 2", "execute 3"]
    assert counted(core) == Counts(out_of_memory=2, oom_alone=2)


def test_company_that_has_ended_meanwhile_was_company() -> None:
    core = with_instances(2)
    core.ask(1)
    core.now = 1.0
    core.ask(2)
    core.now = 2.0
    core.finish(2)
    assert run_out(core, 1) == ["execute 1"]
    assert counted(core) == Counts(out_of_memory=1, oom_alone=1)


def test_one_that_was_alone_goes_on_down_the_ladder() -> None:
    core = with_instances(2)
    core.ask(1)
    core.ask(2)
    core.now = 1.0
    core.finish(1)
    core.finish(2)
    core.now = 2.0
    core.ask(3)
    assert run_out(core, 3) == ["fail 3: OutOfMemory"]


def test_alone_it_is_tried_once() -> None:
    core = both_running()
    run_out(core, 1)
    core.finish(2)
    assert run_out(core, 3) == ["fail 1: OutOfMemory", "execute 3"]
    assert counted(core) == Counts(out_of_memory=2, oom_alone=1, oom_refused=1)


def test_halves_run_one_after_the_other() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(instances=2, max_batch_size=4))
    for number in range(1, 7):
        core.ask(number)
    assert core.finish(1) == ["succeed 1", "execute 3 4 5 6"]
    assert core.finish(2) == ["succeed 2"]
    assert run_out(core, 3) == ["execute 3 4 5 6"]
    assert run_out(core, 4) == ["execute 3 4"]
    assert core.finish(5) == ["succeed 3 4", "execute 5 6"]
    core.finish(6)
    assert counted(core) == Counts(out_of_memory=2, oom_alone=1, oom_halved=1)


def test_where_company_was_too_much_there_is_none_for_a_while() -> None:
    core = both_running()
    run_out(core, 1)
    core.finish(2)
    core.finish(3)
    core.finish(4)
    core.ask(5)
    assert core.ask(6) == [], "the next two would find none either"
    core.finish(5)
    core.now = FIRST_HOLD_S
    assert core.ask(7) == ["execute 7"]


def test_where_it_was_not_there_is_company_again() -> None:
    core = both_running()
    run_out(core, 1)
    core.finish(2)
    run_out(core, 3)
    assert core.ask(5) == ["execute 5"]


def test_higher_priority_runs_beside_nobody_who_is_tried_again() -> None:
    core = both_running()
    run_out(core, 1)
    core.finish(2)
    assert core.ask(4, priority=1) == []
    assert core.finish(3) == ["succeed 1", "execute 4"]
