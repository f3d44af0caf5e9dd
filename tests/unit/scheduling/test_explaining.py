"""What would happen is what then happens."""

import pytest

from moorage.domain.model import Isolation, ModelKey, Preemption, PreemptionPolicy, SharePolicy
from moorage.scheduling.explain import Explanation, Holder, Verdict
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_spec

PINNED = SharePolicy(pinned=True)


def verdict(explanation: Explanation) -> tuple[Verdict, int, int, int]:
    return explanation.verdict, explanation.needed_bytes, explanation.free_bytes, explanation.missing_bytes


def test_now_where_memory_is_free() -> None:
    core = Core()
    core.resident(make_spec(weights=10, per_row=20, fixed=5))
    explained = core.explain(rows=2)
    assert verdict(explained) == (Verdict.NOW, 45, 90, 0)
    assert (explained.device, explained.priority, explained.rows) == ("cpu", 3, 2)
    assert (explained.evict, explained.preempt, explained.reason) == ((), (), "memory is free")
    assert explained.holders == (Holder("model/1", "weights", 10, 3),)
    assert core.ask(1, rows=2) == ["execute 1"]


def test_what_is_not_loaded_needs_its_weights_and_worker_too() -> None:
    core = Core.on(DeviceLimits(100, context_bytes=7))
    core.register(make_spec(weights=10, per_row=20))
    assert verdict(core.explain()) == (Verdict.NOW, 37, 100, 0)


def test_idle_models_that_would_be_put_out_are_named_in_their_order() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("high", weights=40, share=SharePolicy(priority=2)))
    core.resident(make_spec("low", weights=40, share=SharePolicy(priority=4)))
    core.register(make_spec(weights=70))
    explained = core.explain()
    assert verdict(explained) == (Verdict.EVICT, 70, 20, 0)
    assert explained.evict == (Holder("low/1", "weights", 40, 4), Holder("high/1", "weights", 40, 2))
    assert core.load() == ["unload low/1 on cpu", "unload high/1 on cpu"]


def test_running_requests_that_would_give_way_are_named() -> None:
    core = Core(UNGUARDED)
    low = core.resident(make_spec("low", weights=10, state=60, steps=9, share=SharePolicy(priority=4, pinned=True)))
    core.resident(make_spec(weights=10, fixed=30))
    core.ask(1, low)
    explained = core.explain(priority=2)
    assert verdict(explained) == (Verdict.PREEMPT, 30, 20, 0)
    assert explained.preempt == (Holder("low/1", "state", 60, 4),)
    assert core.ask(2, priority=2) == []
    assert core.step(low) == ["drop 1"]
    assert core.explain(priority=5).verdict is Verdict.WAIT


def test_a_step_that_ends_anyway_is_waited_for() -> None:
    core = Core(UNGUARDED)
    low = core.resident(make_spec("low", weights=0, fixed=80, steps=9, share=SharePolicy(priority=4)))
    core.resident(make_spec(weights=10, fixed=30))
    core.ask(1, low)
    explained = core.explain()
    assert explained.verdict is Verdict.WAIT
    assert not explained.preempt


def test_a_run_under_way_is_waited_for_and_its_model_named() -> None:
    core = Core(UNGUARDED)
    busy = core.resident(make_spec("busy", weights=50, fixed=10))
    core.ask(1, busy)
    core.register(make_spec(weights=60))
    explained = core.explain()
    assert explained.verdict is Verdict.WAIT
    assert explained.evict == (Holder("busy/1", "weights", 60, 3),)


def test_what_would_wait_for_more_than_can_go_now_says_how_much_is_missing() -> None:
    core = Core()
    core.resident(make_spec("lately", weights=60))
    core.register(make_spec(weights=70))
    assert verdict(core.explain()) == (Verdict.WAIT, 70, 40, 30)


@pytest.mark.parametrize(("weights", "rows"), [(101, 1), (50, 6)])
def test_never_where_the_device_alone_would_be_too_small(weights: int, rows: int) -> None:
    core = Core()
    core.register(make_spec(weights=weights, per_row=10))
    assert core.explain(rows=rows).verdict is Verdict.NEVER


def test_refused_where_it_exceeds_what_stays_and_never_where_its_own_limit() -> None:
    core = Core()
    core.resident(make_spec("pinned", weights=60, share=PINNED))
    core.register(make_spec(weights=50))
    explained = core.explain()
    assert (explained.verdict, explained.reason) == (
        Verdict.REFUSED,
        "what others hold there stays: it would be refused for now",
    )
    assert core.load() == ["not loaded model/1: MemoryExhausted"]
    limited = core.register(make_spec("limited", per_row=5, share=SharePolicy(limit_bytes=9)))
    assert [core.explain(limited, rows).verdict for rows in (1, 2)] == [Verdict.NOW, Verdict.NEVER]


def test_what_is_kept_for_higher_priority_is_not_free() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("busy", weights=20, fixed=20))
    core.resident(make_spec(weights=10, fixed=30))
    core.ask(1, ModelKey("busy", 1))
    core.hold(1, 60, priority=1)
    explained = core.explain(priority=3)
    assert (explained.verdict, explained.free_bytes) == (Verdict.WAIT, 0)
    assert core.ask(2, priority=3) == []


def test_what_comes_in_counts_what_is_reserved_for_it_and_not_a_process_that_runs() -> None:
    core = Core.on(DeviceLimits(100, context_bytes=10), UNGUARDED)
    core.resident(make_spec("other", weights=30))
    core.register(make_spec(weights=40, share=SharePolicy(reserved_bytes=60)))
    assert verdict(core.explain()) == (Verdict.NOW, 60, 60, 0)


def test_a_dedicated_process_that_would_end_is_named_after_its_model() -> None:
    core = Core.on(DeviceLimits(100, context_bytes=10, host_bytes=100), UNGUARDED)
    core.resident(make_spec("own", weights=60, offloads=True, isolation=Isolation.DEDICATED))
    core.register(make_spec(weights=82))
    explained = core.explain()
    assert explained.evict == (Holder("own/1", "weights", 60, 3), Holder("own/1", "context", 10, 3))
    assert explained.verdict is Verdict.EVICT


def test_everybody_on_the_device_is_named_the_largest_first() -> None:
    core = Core.on(DeviceLimits(100, context_bytes=3))
    core.resident(make_spec(weights=10, fixed=5))
    core.ask(1)
    core.hold(7, 40, priority=2)
    assert core.explain().holders == (
        Holder("hold-7", "held", 40, 2),
        Holder("model/1", "weights", 10, 3),
        Holder("model/1", "workspace", 5, 3),
        Holder("cpu", "context", 3, 0),
    )


def test_a_reservation_counts_as_free_for_its_model_alone() -> None:
    core = Core()
    core.resident(make_spec(weights=10, fixed=60, share=SharePolicy(reserved_bytes=70)))
    core.register(make_spec("other", weights=40))
    assert core.explain().free_bytes == 90
    assert core.explain(ModelKey("other", 1)).free_bytes == 30


def test_where_no_device_matches_there_is_nothing_to_say() -> None:
    core = Core()
    core.register(make_spec(devices=("tpu",)))
    assert core.scheduler.explain(MODEL, 1, 0, core.now) is None


def test_nothing_comes_of_asking() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec("idle", weights=60))
    core.register(make_spec(weights=50, preemption=PreemptionPolicy(Preemption.KILL)))
    before = (core.free_bytes(), core.kinds())
    core.explain()
    core.scheduler.check_integrity()
    assert (core.free_bytes(), core.kinds()) == before
    assert core.wait_until(core.now) == []
