"""After a run that found no memory, runs stay smaller for a while."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.errors import MemoryExhausted
from moorage.scheduling import events
from moorage.scheduling.ceilings import FIRST_HOLD_S, RowCeiling
from tests.support.core import Core
from tests.support.scheduling import make_spec

NO_MEMORY = MemoryExhausted("a run", device="its device", needed_bytes=0, free_bytes=0)


def test_it_is_half_of_what_failed_and_no_more_than_it_was() -> None:
    ceiling = RowCeiling()
    assert ceiling.most_rows(32, 0.0) == 32
    ceiling.ran_out(20, 0.0)
    assert ceiling.most_rows(32, 1.0) == 10
    ceiling.ran_out(30, 1.0)
    assert ceiling.most_rows(32, 1.0) == 10
    ceiling.ran_out(9, 1.0)
    assert ceiling.most_rows(32, 1.0) == 4
    ceiling.ran_out(1, 1.0)
    assert ceiling.most_rows(32, 1.0) == 4


def test_it_rises_with_time_and_is_forgotten_when_full_runs_have_fitted() -> None:
    ceiling = RowCeiling()
    ceiling.ran_out(16, 0.0)
    limits = [ceiling.most_rows(32, 1.0 + number * FIRST_HOLD_S) for number in range(6)]
    assert limits == [8, 16, 32, 32, 32, 32]


def test_each_time_that_it_was_right_it_stays_twice_as_long() -> None:
    ceiling = RowCeiling()
    ceiling.ran_out(16, 0.0)
    assert ceiling.most_rows(16, FIRST_HOLD_S) == 16
    ceiling.ran_out(16, FIRST_HOLD_S)
    assert ceiling.most_rows(16, 3 * FIRST_HOLD_S - 0.1) == 8
    assert ceiling.most_rows(16, 3 * FIRST_HOLD_S) == 16


@given(fits=st.integers(1, 64), most=st.integers(1, 64), end_s=st.floats(1.0, 3600.0))
def test_of_full_runs_in_an_hour_only_a_few_fail(fits: int, most: int, end_s: float) -> None:
    ceiling, failed, now = RowCeiling(), 0, 0.0
    while now < end_s:
        rows = ceiling.most_rows(most, now)
        if rows > fits and rows > 1:
            failed += 1
            ceiling.ran_out(rows, now)
        now += 0.5
    assert failed <= 6 + 7  # halvings, and one try for each doubling of the time


def test_batches_that_found_no_memory_are_halved_and_do_not_come_again() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=16))
    core.ask(1000)
    for number in range(1, 33):
        core.ask(number)
    core.finish(1)
    halves = core.send(events.RunFailed(2, NO_MEMORY))
    assert halves == ["execute " + " ".join(map(str, range(1, 9)))]
    core.finish(3)
    core.finish(4)
    run = core.model().run
    assert run is not None
    assert run.rows == 8
    assert core.model().counts.out_of_memory == 1


def test_one_request_that_finds_no_memory_is_refused_alone() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=16))
    core.ask(1)
    core.ask(2)
    assert core.send(events.RunFailed(1, NO_MEMORY)) == ["fail 1: MemoryExhausted", "execute 2"]
