"""Runs that somebody would come too late by: how large they are, who is in them, and who is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.domain.errors import DeadlineUnmeetable
from tests.support.core import Core
from tests.support.scheduling import make_request, make_spec

# A run takes 10 s, and 1 s for each row.
FIXED_S, MOST_ROWS = 10.0, 16


def waiting(
    within_s: list[float], *, priorities: list[int] | None = None, alike: bool = True
) -> tuple[Core, list[str]]:
    """Requests of one row came during a run, which ends when they have so much time left; what is done then."""
    core = Core()
    core.resident(make_spec(max_batch_size=MOST_ROWS))
    run_id = 0
    for rows in (1, 2, 4, 8, MOST_ROWS):
        for _ in range(3):
            run_id += 1
            core.ask(1000 + run_id, rows=rows)
            core.now += FIXED_S + rows
            core.finish(run_id)
    core.now += 1000.0  # What was learned so long ago refuses nobody who comes.
    core.ask(999)
    for number, (left_s, priority) in enumerate(zip(within_s, priorities or [3] * len(within_s), strict=True), 1):
        request = make_request(
            number,
            arrived_s=core.now - 100.0,  # so that an answer is given 10 ms
            deadline_s=core.now + FIXED_S + 1.0 + left_s,
            priority=priority,
            batch_key="same" if alike else number,
        )
        assert core.arrive(request) == []
    core.now += FIXED_S + 1.0
    return core, core.finish(run_id + 1)


def executed(told: list[str]) -> list[int]:
    return [int(number) for line in told if line.startswith("execute") for number in line.split()[1:]]


def refused(told: list[str]) -> list[int]:
    return [int(line.split()[1].rstrip(":")) for line in told if line.startswith("fail")]


def test_nobody_is_judged_by_rows_that_are_not_in_the_run() -> None:
    """Twenty wait, none of whom shares a run with another: the first has time enough for one of its own."""
    _, told = waiting([12.0] + [500.0] * 19, alike=False)
    assert (executed(told), refused(told)) == ([1], [])


def test_where_a_full_run_is_too_late_for_everybody_a_smaller_one_is_not() -> None:
    _, told = waiting([20.0] * 20)
    assert (executed(told), refused(told)) == ([1, 2, 3, 4, 5, 6, 7, 8, 9], [])


def test_where_most_are_in_time_by_a_full_run_the_others_leave_it_to_them() -> None:
    core, told = waiting([15.0, 20.0] + [100.0] * 20)
    assert (executed(told), refused(told)) == (list(range(3, 3 + MOST_ROWS)), [1, 2])
    assert all(isinstance(error, DeadlineUnmeetable) for error in core.errors())


def test_who_has_no_time_for_a_run_of_its_own_is_refused_whatever_the_others_have() -> None:
    _, told = waiting([10.5, 100.0, 100.0])
    assert (executed(told), refused(told)) == ([2, 3], [1])


def test_high_priority_is_not_refused_for_the_sake_of_a_low_one() -> None:
    _, told = waiting([14.0] + [100.0] * 20, priorities=[1] + [5] * 20)
    assert (executed(told), refused(told)) == ([1, 2, 3], [])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(11.5, 60.0), min_size=1, max_size=40), st.data())
def test_who_is_computed_is_in_time_and_who_is_refused_would_have_been_late(
    within_s: list[float], data: st.DataObject
) -> None:
    priorities = data.draw(st.lists(st.sampled_from([1, 3, 5]), min_size=len(within_s), max_size=len(within_s)))
    _, told = waiting(within_s, priorities=priorities)
    run, late = executed(told), refused(told)
    assert run, "everybody had time for a run of their own"
    run_s = FIXED_S + len(run)
    assert all(within_s[number - 1] >= run_s for number in run)
    assert not set(run) & set(late)
    highest = min(priorities[number - 1] for number in run)
    assert all(priorities[number - 1] >= highest for number in late)


@pytest.mark.parametrize("count", [1, 5, MOST_ROWS])
def test_with_time_enough_all_are_computed(count: int) -> None:
    _, told = waiting([100.0] * count)
    assert (executed(told), refused(told)) == (list(range(1, count + 1)), [])
