"""Requests that can't be answered in time, by what is known, are refused at once; whoever can be is not."""

import pytest

from moorage.domain.errors import DeadlineUnmeetable
from moorage.domain.model import ModelKey, QueuePolicy
from moorage.domain.tensor import TensorSpec
from moorage.scheduling.state import Limits
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_request, make_spec


def knowing(run_s: float, *, rows: int = 1, max_batch_size: int = 1, runs: int = 3) -> Core:
    """A model whose runs of so many rows took that long, and that has just ended one."""
    core = Core()
    core.resident(make_spec(max_batch_size=max_batch_size))
    for number in range(1, runs + 1):
        core.ask(1000 + number, rows=rows)
        core.now += run_s
        core.finish(number)
    return core


def ask(core: Core, request_id: int, within_s: float, *, rows: int = 1, model: ModelKey = MODEL) -> list[str]:
    deadline_s = core.now + within_s
    return core.arrive(make_request(request_id, rows=rows, model=model, arrived_s=core.now, deadline_s=deadline_s))


def figures(core: Core) -> tuple[float, float, float]:
    (error,) = core.errors()
    assert isinstance(error, DeadlineUnmeetable)
    return error.wait_s, error.load_s, error.run_s


def test_the_rest_of_the_run_the_runs_before_and_its_own_must_fit() -> None:
    core = knowing(1.0)
    core.ask(1)
    ask(core, 2, 2.5)
    core.now += 0.25
    assert ask(core, 3, 2.7) == ["fail 3: DeadlineUnmeetable"]
    assert figures(core) == pytest.approx((1.75, 0.0, 1.0))
    assert str(core.errors()[0]) == (
        "deadline cannot be met: 2.700 s are left, and it would take "
        "1.750 s to wait, 0.000 s to load, 1.000 s to run and 0.010 s to answer"
    )
    assert ask(core, 4, 2.8) == []


def test_who_is_due_later_is_not_waited_for() -> None:
    core = knowing(1.0)
    core.ask(1)
    core.ask(2)
    assert ask(core, 3, 1.9) == ["fail 3: DeadlineUnmeetable"]
    assert figures(core) == pytest.approx((1.0, 0.0, 1.0))
    assert ask(core, 4, 2.1) == []
    assert ask(core, 5, 2.9) == ["fail 5: DeadlineUnmeetable"]
    core.now += 1.0
    assert core.finish(4) == ["succeed 1", "execute 4"]


def test_who_can_share_a_run_waits_for_none_before_it() -> None:
    core = knowing(1.0, rows=4, max_batch_size=4)
    core.ask(1, rows=4)
    ask(core, 2, 1.9, rows=2)
    assert ask(core, 3, 1.9, rows=2) == ["fail 3: DeadlineUnmeetable"]
    assert figures(core) == pytest.approx((1.0, 0.0, 1.0))
    assert ask(core, 4, 2.1, rows=2) == []
    assert ask(core, 5, 2.5, rows=1) == ["fail 5: DeadlineUnmeetable"]


def test_its_own_run_must_fit() -> None:
    core = knowing(1.0)
    assert ask(core, 1, 0.9) == ["fail 1: DeadlineUnmeetable"]
    assert figures(core) == pytest.approx((0.0, 0.0, 1.0))
    assert ask(core, 2, 1.1) == ["execute 2"]


def test_after_a_while_without_a_run_one_is_let_through_whatever_was_learned() -> None:
    """Else nothing would ever show that the model is faster now."""
    core = knowing(1.0)
    core.now += 2.1
    assert ask(core, 1, 0.1) == ["execute 1"]


def test_what_was_learned_long_ago_refuses_nobody() -> None:
    core = knowing(1.0)
    core.ask(1)
    core.now += 30.0
    assert ask(core, 2, 0.1) == []


def test_nothing_is_known_of_a_model_that_never_ran() -> None:
    core = Core()
    core.resident()
    core.ask(1)
    assert ask(core, 2, 0.001) == []


def test_a_model_that_became_slower_is_looked_at_anew() -> None:
    core = knowing(0.01)
    core.ask(1)
    assert ask(core, 2, 100.0) == []
    for run_id in range(4, 30):
        core.now += 1.0
        core.finish(run_id)
        core.ask(100 + run_id)
        core.ask(200 + run_id)
    assert ask(core, 999, 1.5) == ["fail 999: DeadlineUnmeetable"]


def test_who_would_be_late_when_their_turn_comes_is_not_computed() -> None:
    core = knowing(1.0)
    core.ask(1)
    assert ask(core, 2, 2.1) == []
    assert ask(core, 3, 9.0) == []
    core.now += 1.5
    assert core.finish(4) == ["succeed 1", "fail 2: DeadlineUnmeetable", "execute 3"]
    assert ask(core, 4, 9.0) == []


@pytest.mark.parametrize(("run_s", "within_s"), [(1.0, 1.009), (0.1, 0.1019)])
def test_an_answer_has_a_way_to_go(run_s: float, within_s: float) -> None:
    """And the caller's deadline is a little before ours: that is 10 ms, or a fiftieth."""
    core = knowing(run_s)
    assert ask(core, 1, within_s) == ["fail 1: DeadlineUnmeetable"]
    assert ask(core, 2, within_s + 0.002) == ["execute 2"]


@pytest.mark.parametrize(("took_s", "is_late"), [(1.070, False), (1.078, True)])
def test_an_answer_that_would_come_at_the_last_moment_is_not_computed(took_s: float, is_late: bool) -> None:
    core = knowing(1.0)
    core.ask(1)
    assert ask(core, 2, 2.1) == []
    core.now += took_s
    assert core.finish(4) == ["succeed 1", "fail 2: DeadlineUnmeetable" if is_late else "execute 2"]


def test_late_ones_leave_their_run_to_others() -> None:
    core = knowing(1.0, rows=2, max_batch_size=2)
    core.ask(1, rows=2)
    assert ask(core, 2, 2.1) == []
    for number in (3, 4, 5):
        core.ask(number)
    core.now += 1.5
    assert core.finish(4) == ["succeed 1", "fail 2: DeadlineUnmeetable", "execute 3 4"]


def test_a_cold_model_is_brought_in_though_the_request_can_not_wait_for_it() -> None:
    core = Core(UNGUARDED)
    cold = core.resident(make_spec("cold", weights=60), load_s=5.0)
    core.now += 10.0
    core.register(make_spec("other", weights=60))
    other = ModelKey("other", 1)
    assert core.load(other) == ["unload cold/1 on cpu"]
    assert core.unloaded(cold) == ["load other/1 on cpu"]
    assert core.loaded(other, 60) == ["loaded other/1"]
    assert ask(core, 1, 4.9, model=cold) == ["fail 1: DeadlineUnmeetable", "unload other/1 on cpu"]
    assert figures(core) == pytest.approx((0.0, 5.0, 0.0))
    assert core.unloaded(other) == ["load cold/1 on cpu"]
    core.now += 1.0
    assert ask(core, 2, 3.9, model=cold) == ["fail 2: DeadlineUnmeetable"]
    assert ask(core, 3, 4.1, model=cold) == []


def test_a_full_queue_is_told_first() -> None:
    core = Core(Limits(max_waiting_rows=1))
    core.resident(make_spec(max_batch_size=1, queue=QueuePolicy(max_rows=1)))
    core.ask(1)
    core.ask(2)
    assert ask(core, 3, 0.001) == ["fail 3: QueueFull"]


def test_work_of_lower_priority_is_not_waited_for() -> None:
    core = knowing(1.0)
    for number in (1, 2, 3):
        core.ask(number, priority=5)
    deadline_s = core.now + 2.1
    urgent = make_request(4, arrived_s=core.now, deadline_s=deadline_s, priority=1)
    assert core.arrive(urgent) == []
    for number in (5, 6):
        waiting = make_request(number, arrived_s=core.now, deadline_s=core.now + 4.1, priority=5)
        assert core.arrive(waiting) == []
    last = make_request(7, arrived_s=core.now, deadline_s=core.now + 4.1, priority=5)
    assert core.arrive(last) == ["fail 7: DeadlineUnmeetable"]


SHORT, LONG = 10, 1000
SHORT_S, LONG_S = 0.1, 1.0
TEXT = (TensorSpec("x", "UINT8", [-1]),)


def knowing_lengths(max_batch_size: int = 1) -> Core:
    """A model whose runs take longer for longer rows; it has just run some of both lengths."""
    core = Core()
    core.resident(make_spec(max_batch_size=max_batch_size, inputs=TEXT))
    for number in range(1, 11):
        length, run_s = (SHORT, SHORT_S) if number % 2 else (LONG, LONG_S)
        core.arrive(make_request(1000 + number, size_bytes=length, arrived_s=core.now, deadline_s=1e6))
        core.now += run_s
        core.finish(number)
    return core


def ask_of(core: Core, request_id: int, length: int, within_s: float, *, padded: bool = False) -> list[str]:
    request = make_request(
        request_id,
        size_bytes=length,
        arrived_s=core.now,
        deadline_s=core.now + within_s,
        padded=((1, length),) if padded else (),
    )
    return core.arrive(request)


def test_rows_of_other_sizes_take_other_times() -> None:
    core = knowing_lengths()
    assert ask_of(core, 1, LONG, 0.9) == ["fail 1: DeadlineUnmeetable"]
    assert figures(core) == pytest.approx((0.0, 0.0, LONG_S), rel=0.05)
    assert ask_of(core, 2, SHORT, 0.15) == ["execute 2"]


def test_the_rest_of_a_run_is_by_the_size_of_its_rows() -> None:
    core = knowing_lengths()
    ask_of(core, 1, LONG, 10.0)
    core.now += 0.5
    assert ask_of(core, 2, SHORT, 0.45) == ["fail 2: DeadlineUnmeetable"]
    assert figures(core)[0] == pytest.approx(0.5, rel=0.05)
    assert ask_of(core, 3, SHORT, 0.7) == []


def test_a_size_that_did_not_run_lately_refuses_nobody() -> None:
    core = knowing_lengths()
    for number in range(11, 41):
        ask_of(core, number, SHORT, 10.0)
        core.now += SHORT_S
        core.finish(number)
    assert ask_of(core, 1, LONG, 0.15) == ["execute 1"]
    assert ask_of(core, 2, SHORT, 0.0001) == ["fail 2: DeadlineUnmeetable"]


@pytest.mark.parametrize(("padded", "is_late"), [(True, True), (False, False)])
def test_a_run_of_rows_that_are_filled_up_takes_what_its_largest_does(padded: bool, is_late: bool) -> None:
    core = knowing_lengths(max_batch_size=4)
    ask_of(core, 1, LONG, 10.0, padded=padded)
    assert ask_of(core, 2, SHORT, LONG_S + 0.3, padded=padded) == []
    for number in (3, 4):
        assert ask_of(core, number, SHORT, 10.0, padded=padded) == []
    assert ask_of(core, 5, LONG, 10.0, padded=padded) == []
    core.now += LONG_S
    told = core.finish(11)
    assert ("fail 2: DeadlineUnmeetable" in told) is is_late
