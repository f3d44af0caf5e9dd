"""A run that finds no memory though the ledger had it is tried again whole, once others have made way."""

from moorage.domain.model import Isolation, ModelKey, SharePolicy
from moorage.scheduling.ceilings import FIRST_HOLD_S, MOST_HOLD_S, Spacing
from moorage.scheduling.records import Counts
from moorage.scheduling.state import Limits
from tests.support.core import Core
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
