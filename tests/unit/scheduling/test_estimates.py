"""What runs of any size are expected to take, from those that were seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduling.estimates import RunSeconds

runs = st.lists(st.tuples(st.integers(1, 64), st.floats(1e-6, 100.0)), min_size=1, max_size=40)


def learned(*runs: tuple[int, float], times: int = 1) -> RunSeconds:
    seconds = RunSeconds()
    for _ in range(times):
        for rows, run_s in runs:
            seconds.note(rows, run_s)
    return seconds


def test_before_the_first_run_nothing_is_known() -> None:
    assert RunSeconds().is_empty
    with pytest.raises(ValueError, match="nothing is known"):
        RunSeconds().expected_s(1)


def test_of_one_size_half_is_taken_to_grow_with_the_rows() -> None:
    seconds = learned((4, 8.0))
    assert not seconds.is_empty
    assert [seconds.expected_s(rows) for rows in (4, 8, 2)] == [8.0, 12.0, 6.0]


def test_a_straight_line_is_found_and_goes_on() -> None:
    seconds = learned((1, 6.5), (8, 10.0), (32, 22.0), times=20)
    for rows in (1, 2, 4, 8, 16, 32, 64):
        assert seconds.expected_s(rows) == pytest.approx(6 + rows / 2)


def test_one_run_that_was_held_up_changes_little() -> None:
    seconds = learned((4, 1.0), times=20)
    seconds.note(4, 1000.0)
    assert seconds.expected_s(4) == pytest.approx(1.2)


def test_what_changes_for_good_is_learnt() -> None:
    seconds = learned((4, 1.0), times=100)
    for _ in range(60):
        seconds.note(4, 5.0)
    assert seconds.expected_s(4) == pytest.approx(5.0, rel=0.05)


@given(runs=runs, rows=st.integers(1, 128))
def test_more_rows_never_take_less(runs: list[tuple[int, float]], rows: int) -> None:
    seconds = learned(*runs)
    assert 0.0 <= seconds.expected_s(rows) <= seconds.expected_s(rows + 1) + 1e-9


@given(runs=runs)
def test_no_size_that_was_seen_is_expected_beyond_what_was_seen(runs: list[tuple[int, float]]) -> None:
    seconds = learned(*runs)
    longest_s = max(run_s for _, run_s in runs)
    largest = max(rows for rows, _ in runs)
    most_times = 1.0 if len({rows.bit_length() for rows, _ in runs}) > 1 else 2.0
    within_class = all(seconds.expected_s(rows) <= longest_s * most_times + 1e-9 for rows, _ in runs if rows < largest)
    assert within_class
