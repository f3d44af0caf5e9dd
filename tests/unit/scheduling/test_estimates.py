"""What runs of any size are expected to take, from those that were seen."""

import math
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.model import ProfiledRun
from moorage.scheduling.estimates import KNOWN_FOR_S, RunSeconds

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


# Milliseconds of the example `embedder` on one core, by bytes of a text and rows.
EMBEDDER_MS = {
    26: {1: 12.1, 2: 13.6, 4: 15.4, 8: 22.5, 16: 33.7},
    52: {1: 13.6, 2: 16.7, 4: 21.8, 8: 31.0, 16: 51.7},
    101: {1: 13.7, 2: 18.1, 4: 30.1, 8: 47.4, 16: 94.8},
    197: {1: 23.5, 2: 26.7, 4: 43.2, 8: 88.8, 16: 178.6},
    386: {1: 31.6, 2: 47.5, 4: 83.9, 8: 150.3, 16: 324.5},
}


def of_embedder(*sizes: int, times: int = 20) -> RunSeconds:
    seconds = RunSeconds()
    for _ in range(times):
        for row_bytes in sizes:
            for rows, ms in EMBEDDER_MS[row_bytes].items():
                seconds.note(rows, ms, row_bytes, 0.0)
                seconds.expected_s(rows)
    return seconds


def error(expected: float, measured: float) -> float:
    """1.0 is a factor of e, either way."""
    return abs(math.log(expected / measured))


def test_an_error_is_held_against_what_was_expected_and_a_profile_against_nothing() -> None:
    """Sizes of one class take different times, all of them on the line."""
    line = [(rows, 6.0 + 0.8 * rows) for rows in (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)]
    profiled = RunSeconds(
        [
            ProfiledRun(rows=rows, row_bytes=4, peak_bytes=0, reserved_bytes=None, seconds=took_s)
            for rows, took_s in line
        ]
    )
    assert all(profiled.error(rows) is None and profiled.is_known(rows) for rows, _ in line)
    for rows, took_s in line:
        profiled.note(rows, took_s)
        found = profiled.error(rows)
        assert found is not None
        assert found < 0.01
    profiled.note(1, 2 * 6.8)
    assert profiled.error(1) == pytest.approx(0.5, rel=0.1)


def test_what_runs_of_a_size_take_is_known_from_the_third_on() -> None:
    seconds = RunSeconds()
    known = []
    for _ in range(4):
        known.append(seconds.is_known(2))
        seconds.note(2, 1.0)
    assert known == [False, False, False, True]
    assert not seconds.is_known(4)


def test_shapes_that_were_seen_are_told_apart() -> None:
    seconds = of_embedder(*EMBEDDER_MS)
    for row_bytes, by_rows in EMBEDDER_MS.items():
        for rows, ms in by_rows.items():
            assert seconds.expected_s(rows, row_bytes) == pytest.approx(ms, rel=1e-6)
    assert max(seconds.error(rows, size) or 0.0 for size in EMBEDDER_MS for rows in (1, 2, 4, 8, 16)) < 1e-6


def test_a_shape_that_was_not_seen_lies_between_its_neighbours() -> None:
    """By what was measured that is far nearer than what all runs take on average, and than the next larger shape."""
    lines, plain, larger = [], [], []
    for left_out, by_rows in EMBEDDER_MS.items():
        others = [size for size in EMBEDDER_MS if size != left_out]
        seconds = of_embedder(*others)
        above = min((size for size in others if size > left_out), default=max(others))
        for rows, ms in by_rows.items():
            lines.append(error(seconds.expected_s(rows, left_out), ms))
            plain.append(error(seconds.expected_s(rows), ms))
            larger.append(error(EMBEDDER_MS[above][rows], ms))
    assert mean(lines) < 0.15
    assert mean(lines) < mean(larger) / 2 < mean(plain)


def test_a_shape_of_which_runs_of_one_size_were_seen_grows_with_the_rows_as_all_do() -> None:
    seconds = learned((1, 10.0), (16, 160.0), times=20)
    for _ in range(5):
        seconds.note(4, 4.0, 8, 0.0)
    assert seconds.expected_s(4, 8) == pytest.approx(4.0)
    grown = seconds.expected_s(16, 8) / seconds.expected_s(4, 8)
    assert grown == pytest.approx(seconds.expected_s(16) / seconds.expected_s(4))
    assert grown > 2.0


def test_the_least_is_what_smaller_rows_took_lately() -> None:
    seconds = of_embedder(26, 386)
    assert seconds.least_s(16, 386, 0.5) == pytest.approx(324.5)
    assert seconds.least_s(16, 193 + 64, 0.5) == pytest.approx(324.5 * 257 / 386)  # of the same shape, and smaller
    assert seconds.least_s(16, 101, 0.5) == pytest.approx(33.7)  # not seen: as much as the next smaller
    assert seconds.least_s(16, 9000, 0.5) == pytest.approx(324.5)
    assert seconds.least_s(16, 3, 0.5) == 0.0


def test_what_was_learned_of_a_shape_long_ago_says_nothing_of_the_least() -> None:
    seconds = learned_of_two_shapes(ended_s=0.0)
    later_s = 2 * KNOWN_FOR_S
    assert seconds.least_s(1, 1000, later_s) == 0.0
    seconds.note(1, 0.01, 10, later_s)
    assert seconds.least_s(1, 1000, later_s) == pytest.approx(0.01)
    assert seconds.expected_s(1, 1000) == pytest.approx(0.4)


def learned_of_two_shapes(*, ended_s: float) -> RunSeconds:
    seconds = RunSeconds()
    for _ in range(10):
        seconds.note(1, 0.01, 10, ended_s)
        seconds.note(1, 0.4, 1000, ended_s)
    return seconds


def test_a_profile_tells_shapes_apart_where_rows_vary_however_long_it_is() -> None:
    runs = tuple(
        ProfiledRun(rows, row_bytes, 0, None, rows * row_bytes / 1e3)
        for row_bytes in (10, 100, 1000)
        for rows in range(1, 33)
    )
    varying, alike = RunSeconds(runs, rows_vary=True), RunSeconds(runs)
    assert varying.expected_s(1, 10) == pytest.approx(0.01)
    assert varying.expected_s(1, 1000) == pytest.approx(1.0)
    assert varying.least_s(1, 1000, 0.0) == 0.0  # nothing ran here yet
    assert alike.expected_s(1, 10) == alike.expected_s(1, 1000) == varying.expected_s(1)
    assert {row_bytes for _, row_bytes in varying.sizes()} == {15, 127, 1023}
    assert {row_bytes for _, row_bytes in alike.sizes()} == {0}


shaped = st.lists(st.tuples(st.integers(1, 64), st.floats(1e-6, 100.0), st.integers(0, 2**20)), min_size=1, max_size=60)


@given(runs=shaped, rows=st.integers(1, 128), row_bytes=st.integers(0, 2**22), now=st.floats(0.0, 100.0))
def test_of_any_shape_more_rows_never_take_less(
    runs: list[tuple[int, float, int]], rows: int, row_bytes: int, now: float
) -> None:
    seconds = RunSeconds()
    for number, (run_rows, run_s, run_bytes) in enumerate(runs):
        seconds.note(run_rows, run_s, run_bytes, float(number))
        if number % 7 == 0:
            seconds.expected_s(1)
    expected_s = seconds.expected_s(rows, row_bytes)
    assert 0.0 <= expected_s <= seconds.expected_s(rows + 1, row_bytes) * (1 + 1e-9) + 1e-9
    assert 0.0 <= seconds.least_s(rows, row_bytes, now) <= seconds.least_s(rows + 1, row_bytes, now) * (1 + 1e-9) + 1e-9
    assert seconds.least_s(rows, row_bytes, now) <= seconds.most_s(rows) * (1 + 1e-9) + 1e-9


@given(runs=runs, rows=st.integers(1, 128), row_bytes=st.integers(0, 2**22))
def test_where_rows_are_of_one_size_their_size_says_nothing(
    runs: list[tuple[int, float]], rows: int, row_bytes: int
) -> None:
    seconds = learned(*runs)
    assert seconds.expected_s(rows, row_bytes) == seconds.expected_s(rows)
