"""Running requests whose states outgrow what room there is for them."""

from moorage.domain.model import Isolation, PreemptionPolicy, SharePolicy
from moorage.scheduling.state import DeviceLimits, Limits
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_spec


def test_where_states_outgrow_their_room_the_last_to_come_gives_way() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=10, state=20, steps=99, max_batch_size=8))
    for number in (1, 2, 3):
        core.ask(number)
        core.now += 0.1
    core.step(state=20)
    core.step(state=25)
    assert core.kinds() == {"weights": 10, "state": 75 + 15}
    assert core.step(state=32) == ["drop 3"]
    assert core.dropped(3) == ["step 1 2"]
    core.step(state=39)
    assert core.step(state=46) == ["drop 2"]
    assert core.dropped(2) == ["step 1 starting 2"]


def test_the_last_one_that_is_left_is_given_up_where_even_alone_it_has_no_room() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=10, state=20, fixed=10, steps=99))
    core.ask(1)
    core.step(state=20)
    assert core.step(state=85) == ["fail 1: MemoryExhausted", "drop 1"]
    core.dropped(1)
    assert core.kinds() == {"weights": 10}


def test_it_takes_its_step_in_what_room_there_is() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=10, state=20, fixed=10, steps=99))
    core.ask(1)
    core.step(state=20)
    assert core.step(state=70) == ["step 1"]
    assert core.step(done=(1,)) == ["succeed 1"]


def test_the_rest_of_a_model_goes_on_while_states_of_it_leave() -> None:
    core = Core(UNGUARDED)
    core.resident(make_spec(weights=10, state=20, steps=99, max_batch_size=8))
    for number in (1, 2, 3):
        core.ask(number)
        core.now += 0.1
    core.step(state=20)
    core.step(state=25)
    assert core.step(state=32) == ["drop 3"]
    assert core.ask(4, priority=5) == []
    assert core.dropped(3) == ["step 1 2"]


def test_of_two_that_came_at_the_same_moment_one_gives_way() -> None:
    core = Core(UNGUARDED)
    first, second = (core.resident(make_spec(name, weights=10, state=20, steps=99)) for name in ("a", "b"))
    assert [core.ask(1, first), core.ask(2, second)] == [["starting 1"], ["starting 2"]]
    for size_bytes in (20, 30):
        assert core.step(first, state=size_bytes) == ["step 1"]
        assert core.step(second, state=size_bytes) == ["step 2"]
    assert core.step(first, state=40) == []
    assert core.step(second, state=40) == ["drop 2"]
    assert core.dropped(2, key=second) == ["step 1", "starting 2"]


def test_who_gave_way_does_not_come_back_before_the_one_it_gave_way_for() -> None:
    core = Core.on(DeviceLimits(100, run_slots=1), UNGUARDED)
    first, second = (core.resident(make_spec(name, weights=10, state=22, fixed=10, steps=99)) for name in ("a", "b"))
    assert [core.ask(1, first), core.ask(2, second)] == [["starting 1"], []]
    assert core.step(first, state=22, seconds=0.1) == ["starting 2"]
    assert core.step(second, state=22, seconds=0.1) == ["step 1"]
    assert core.step(first, state=32, seconds=0.1) == ["step 2"]
    assert core.step(second, state=32, seconds=0.1) == ["drop 2"]
    assert core.dropped(2, key=second) == ["step 1"]
    assert core.step(first, state=32, seconds=0.1) == ["starting 2"]


def test_what_is_about_to_come_free_for_another_leaves_what_is_free_to_whom_it_does_for() -> None:
    """urgent finds two bytes, which are kept for early's first request. It has the last one give way: more than
    that one is short of. Then nothing is kept any more, and urgent need not wait for it."""
    core = Core.on(DeviceLimits(44, run_slots=1))
    alone = PreemptionPolicy(max_preemptions=0)
    early = core.resident(make_spec("early", weights=0, steps=9, state=6, preemption=alone))
    urgent = core.register(
        make_spec("urgent", weights=3, fixed=1, isolation=Isolation.DEDICATED, share=SharePolicy(priority=1))
    )
    core.ask(1, early, priority=1)
    core.ask(2, early)
    core.ask(3, early)
    core.load(urgent)
    core.ask(4, urgent)
    core.now = 0.5
    for state in (9, 12, 12):
        core.step(early, state=state)
    assert core.step(early, state=15) == []
    assert core.free_bytes() == 2
    worker = core.model(urgent).worker
    assert worker is not None
    assert core.up(worker) == ["load urgent/1 on cpu/urgent/1"]
    assert core.loaded(urgent, 3, load_s=1.0) == ["loaded urgent/1", "drop 3", "execute 4"]


def test_who_outgrew_the_device_and_may_not_give_way_is_given_up_rather_than_wait_for_who_waits_for_it() -> None:
    core = Core.on(DeviceLimits(28, run_slots=1), Limits(ageing_s=0.5, min_residency_s=0.0))
    first = core.resident(make_spec("first", weights=12, per_row=1, max_batch_size=1))
    stays = PreemptionPolicy(max_preemptions=0)
    grows = core.resident(
        make_spec("grows", weights=11, per_row=1, max_batch_size=1, steps=3, state=2, preemption=stays)
    )
    assert core.ask(1, model=first, priority=1) == ["execute 1"]
    core.ask(2, model=first, priority=1)
    core.ask(3, model=grows, priority=2)
    core.now += 1.0
    decided = core.finish(1)
    assert decided == ["succeed 1", "starting 3"]
    assert core.step(grows, state=5) == ["fail 3: MemoryExhausted", "drop 3"]
    assert core.dropped(3, key=grows) == ["execute 2"]
