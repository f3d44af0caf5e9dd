"""Models that say that their process may be ended for work of higher priority."""

import pytest

from moorage.domain.model import Isolation, ModelKey, Preemption, PreemptionPolicy, SharePolicy
from moorage.scheduling.state import DeviceLimits, Limits
from tests.support.core import Core
from tests.support.scheduling import BY_STEPS, UNGUARDED, make_request, make_spec

LOW = ModelKey("low", 1)
KILL = PreemptionPolicy(Preemption.KILL)


def killable(policy: PreemptionPolicy = KILL, *, pinned: bool = False) -> Core:
    """A dedicated model of 60 bytes, which may go to the host, and 10 for its process computes request 1."""
    core = Core.on(
        DeviceLimits(100, context_bytes=10, host_bytes=100, run_slots=8), Limits(min_residency_s=0.0, max_attempts=1)
    )
    spec = make_spec(
        "low",
        weights=60,
        fixed=5,
        offloads=True,
        isolation=Isolation.DEDICATED,
        share=SharePolicy(priority=4, pinned=pinned),
        preemption=policy,
    )
    core.resident(spec)
    core.ask(1, LOW)
    return core


def test_a_process_is_ended_for_higher_priority_and_its_requests_are_not_blamed() -> None:
    core = killable()
    high = core.register(make_spec("high", weights=85, share=SharePolicy(priority=1)))
    assert core.load(high) == ["kill cpu/low/1"]
    assert core.ask(2, LOW, priority=5) == []
    assert core.lose("cpu/low/1") == ["start cpu"]
    assert core.model(LOW).counts.preemptions == 1
    assert core.kinds() == {"context": 10, "weights": 85}
    core.up()
    assert core.loaded(high, 85) == ["loaded high/1", "unload high/1 on cpu"]
    assert core.unloaded(high) == ["start cpu/low/1"]
    core.up("cpu/low/1")
    assert core.loaded(LOW, 60) == ["execute 1 2"]


def test_one_whose_process_was_ended_is_told_so_if_its_deadline_comes_first() -> None:
    core = killable()
    core.finish(1)
    core.arrive(make_request(2, model=LOW, deadline_s=9.0))
    high = core.register(make_spec("high", weights=85, share=SharePolicy(priority=1)))
    assert core.load(high) == ["kill cpu/low/1"]
    core.lose("cpu/low/1")
    assert core.wait_until(9.0) == ["fail 2: Preempted"]


def test_a_process_is_ended_rather_than_wait_for_its_run() -> None:
    core = killable()
    assert core.hold(1, 80, priority=1) == ["kill cpu/low/1"]


@pytest.mark.parametrize(
    ("policy", "priority"),
    [(KILL, 4), (BY_STEPS, 1), (PreemptionPolicy(Preemption.KILL, max_preemptions=0), 1)],
)
def test_otherwise_its_run_is_waited_for(policy: PreemptionPolicy, priority: int) -> None:
    core = killable(policy)
    assert core.hold(1, 80, priority=priority) == []
    assert core.finish(1) == ["succeed 1", "offload low/1 on cpu/low/1"]


@pytest.mark.parametrize(
    ("policy", "priority"),
    [(KILL, 4), (BY_STEPS, 1), (PreemptionPolicy(Preemption.KILL, max_preemptions=0), 1)],
)
def test_even_where_all_of_its_memory_is_needed(policy: PreemptionPolicy, priority: int) -> None:
    core = killable(policy)
    assert core.hold(1, 95, priority=priority) == []
    assert core.finish(1) == ["succeed 1", "unload low/1 on cpu/low/1"]


def test_the_process_of_a_pinned_model_is_not_ended() -> None:
    core = killable(pinned=True)
    assert core.hold(1, 80, priority=1) == ["no hold 1: MemoryExhausted"]


def test_nobody_is_ended_where_that_is_not_enough() -> None:
    core = killable()
    core.hold(1, 20, priority=5)
    assert core.hold(2, 90, priority=1) == ["no hold 2: MemoryExhausted"]


def test_one_that_takes_steps_gives_way_between_them() -> None:
    core = Core(UNGUARDED)
    spec = make_spec("low", weights=30, fixed=5, steps=3, state=7, isolation=Isolation.DEDICATED, preemption=KILL)
    core.resident(spec)
    core.ask(1, LOW, priority=4)
    core.hold(1, 40, priority=5)
    assert core.hold(2, 70, priority=1) == ["no hold 2: MemoryExhausted"]
    assert core.hold(3, 20, priority=1) == []
    assert core.step(LOW)[0] == "hold 3"
